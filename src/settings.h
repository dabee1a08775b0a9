/*
 * settings.h
 *		The values of the outbox.* settings.
 */
#ifndef OUTBOX_SETTINGS_H
#define OUTBOX_SETTINGS_H

typedef enum Concurrency
{
	CONCURRENCY_OPTIMISTIC,
	CONCURRENCY_PESSIMISTIC
} Concurrency;

typedef enum DataLoss
{
	DATA_LOSS_REPLAY,
	DATA_LOSS_RESUME
} DataLoss;

extern char *outbox_redis_url;
extern char *outbox_redis_password_file;
extern char *outbox_redis_sentinel_password_file;
extern char *outbox_redis_tls_ca_file;	/* empty = OpenSSL's default */
extern char *outbox_redis_tls_cert_file;
extern char *outbox_redis_tls_key_file;
extern char *outbox_redis_tls_server_name;
extern bool outbox_dispatch;
extern int	outbox_takeover_delay;	/* seconds */
extern char *outbox_endpoint;
extern int	outbox_concurrency;
extern int	outbox_retention;	/* seconds */
extern int	outbox_record_segment_size; /* kB */
extern int	outbox_filter_memory;	/* kB */
extern int	outbox_cleanup_interval;	/* ms, -1 = off */
extern int	outbox_poll_interval;	/* ms */
extern int	outbox_batch_size;	/* messages per batch */
extern int	outbox_max_dispatch_delay;	/* ms */
extern int	outbox_max_attempts;
extern int	outbox_retry_delay; /* ms */
extern int	outbox_retry_max_delay; /* ms */
extern int	outbox_connect_timeout; /* ms */
extern int	outbox_command_timeout; /* ms */
extern int	outbox_replay_window;	/* seconds */
extern int	outbox_max_log_size;	/* kB, 0 = no limit: MB would round small
									 * limits to that */
extern int	outbox_stream_maxlen;	/* 0 = never trim */
extern int	outbox_redis_data_loss;

extern void settings_define(void);
extern void settings_override(const char *name, const char *value);
extern bool settings_concurrency_from_name(const char *name, Concurrency *concurrency);

#endif							/* OUTBOX_SETTINGS_H */
