/*
 * resp.h
 *		The protocol of Redis: writes commands, limits and reads replies.
 */
#ifndef OUTBOX_RESP_H
#define OUTBOX_RESP_H

#include <hiredis.h>

#include "lib/stringinfo.h"

extern void resp_put_array(StringInfo out, int n);
extern void resp_put(StringInfo out, const char *bytes, size_t size);
extern void resp_put_string(StringInfo out, const char *string);
extern void resp_put_command(StringInfo out, int argc, const char **argv);
extern void resp_put_number(StringInfo out, int64 number);

extern void resp_limit_replies(redisReader *reader, int64 *elements);
extern void resp_error(const redisReply *reply, char *error, size_t size);

#endif							/* OUTBOX_RESP_H */
