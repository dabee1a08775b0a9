/*
 * traffic.h
 *		What is under way on the dispatcher's links to Redis.
 */
#ifndef OUTBOX_TRAFFIC_H
#define OUTBOX_TRAFFIC_H

#include "bgworker/connection/batch_verdict.h"
#include "bgworker/connection/command.h"
#include "src/redis_cluster/redis_cluster.h"

extern void traffic_init(LinkAttend attend, LinkPrepare prepare);
extern bool traffic_open(void);
extern bool traffic_is_open(void);
extern void traffic_close(void);
extern RedisCluster *traffic_redis(void);
extern ScriptCall *traffic_script(void);
extern bool traffic_is_clustered(void);

extern bool traffic_reach(Lane *lane);
extern const char *traffic_try_reach(Lane *lane);
extern void traffic_note_reached(void);
extern bool traffic_ask(Lane *lane, int argc, const char **argv);
extern bool traffic_keep_lease(void);
extern bool traffic_send(Lane *lane, Command *command);
extern bool traffic_await(const Lane *lane, TimestampTz until);
extern redisReply *traffic_receive(Lane *lane);
extern bool traffic_receive_verdict(Lane *lane, Verdict *verdict, int messages);
extern bool traffic_receive_claim(Lane *lane, Verdict *verdict);
extern bool traffic_receive_moved(Lane *lane);
extern int	traffic_under_way(void);
extern int64 traffic_round_trip(void);
extern TimestampTz traffic_answered_at(void);

extern bool traffic_fail(const char *reason);
extern bool traffic_fail_as_lane(Lane *lane, const char *reason);
extern bool traffic_fail_as_blocked(const char *why);
extern bool traffic_fail_as_link(RedisLink *link);
extern bool traffic_fail_as_cluster(void);
extern const char *traffic_error(void);
extern void traffic_locate_error(int slot, const char *error, char *why, size_t size);
extern bool traffic_knows_why(void);
extern void traffic_give_up(void);
extern bool traffic_gave_up(void);

#endif							/* OUTBOX_TRAFFIC_H */
