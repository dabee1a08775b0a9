/*
 * settings.c
 *		Every outbox.* setting, with its default, limits and check hook.
 *
 * Called once by _PG_init. Settings that only the dispatcher obeys are
 * PGC_SUSET rather than PGC_SIGHUP so that ALTER DATABASE ... SET gives each
 * database its own.
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "src/redis/redis_url.h"
#include "src/settings.h"

char	   *outbox_redis_url;
char	   *outbox_redis_password_file;
bool		outbox_dispatch;
int			outbox_takeover_delay;
char	   *outbox_endpoint;
int			outbox_concurrency;
int			outbox_retention;
int			outbox_record_segment_size;
int			outbox_filter_memory;
int			outbox_cleanup_interval;
int			outbox_poll_interval;
int			outbox_batch_size;
int			outbox_max_attempts;
int			outbox_retry_delay;
int			outbox_retry_max_delay;
int			outbox_connect_timeout;
int			outbox_command_timeout;
int			outbox_replay_window;
int			outbox_max_log_size;
int			outbox_stream_maxlen;
int			outbox_redis_data_loss;

static const struct config_enum_entry concurrency_options[] = {
	{"optimistic", CONCURRENCY_OPTIMISTIC, false},
	{"pessimistic", CONCURRENCY_PESSIMISTIC, false},
	{NULL, 0, false}
};

static const struct config_enum_entry data_loss_options[] = {
	{"replay", DATA_LOSS_REPLAY, false},
	{"resume", DATA_LOSS_RESUME, false},
	{NULL, 0, false}
};

static const char *value_in_file(const char *name);
static void refuse_to_start(const char *name);
static void define_callers_settings(void);
static void define_redis_settings(void);
static void define_dispatch_settings(void);
static void define_retention_settings(void);
static bool check_redis_url(char **newval, void **extra, GucSource source);
static bool check_endpoint(char **newval, void **extra, GucSource source);

/*
 * Defines all settings and reserves their prefix.
 *
 * What postgresql.conf says was taken unseen until now. Where it is wrong,
 * PostgreSQL warns and goes on with the default. That will not do for the two
 * that tell where messages go: the server would send them to whatever Redis is
 * at the default URL, or a copy that was meant to be silent would send. So it
 * does not start, as with a wrong setting of PostgreSQL itself.
 */
void
settings_define(void)
{
	const char *url = value_in_file("outbox.redis_url");
	const char *dispatch = value_in_file("outbox.dispatch");
	bool		ignored;

	define_callers_settings();
	define_redis_settings();
	define_dispatch_settings();
	define_retention_settings();
	MarkGUCPrefixReserved("outbox");

	if (url && strcmp(url, outbox_redis_url) != 0)
		refuse_to_start("outbox.redis_url");
	if (dispatch && !parse_bool(dispatch, &ignored))
		refuse_to_start("outbox.dispatch");
}

/* The value that a server that starts has read, before it is checked; NULL: none, or it does not start. */
static const char *
value_in_file(const char *name)
{
	const char *value;

	if (!process_shared_preload_libraries_in_progress || IsUnderPostmaster)
		return NULL;
	value = GetConfigOption(name, true, false);
	return value ? pstrdup(value) : NULL;
}

/* The value is not shown: it may hold a password. */
static void
refuse_to_start(const char *name)
{
	ereport(FATAL,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for parameter \"%s\"", name),
			 errdetail("With the default, messages might be sent where they must not go."),
			 errhint("Correct it in the configuration, and start the server again.")));
}

/* Finds the concurrency of that name; false if there is none. */
bool
settings_concurrency_from_name(const char *name, Concurrency *concurrency)
{
	for (const struct config_enum_entry *option = concurrency_options; option->name; option++)
	{
		if (strcmp(option->name, name) == 0)
		{
			*concurrency = (Concurrency) option->val;
			return true;
		}
	}
	return false;
}

static void
define_callers_settings(void)
{
	DefineCustomStringVariable("outbox.endpoint",
							   "Endpoint that outbox_begin() uses unless it is given one.",
							   NULL, &outbox_endpoint, "default",
							   PGC_USERSET, 0, check_endpoint, NULL, NULL);
	DefineCustomEnumVariable("outbox.concurrency",
							 "Whether a message is claimed at its end (optimistic) or its begin (pessimistic).",
							 NULL, &outbox_concurrency, CONCURRENCY_OPTIMISTIC, concurrency_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
}

static void
define_redis_settings(void)
{
	DefineCustomStringVariable("outbox.redis_url",
							   "Redis that messages are published to.",
							   "redis://[[user]:password@]host[:port][/db], unix:///path or redis+sentinel://host[:port],.../master. "
							   "ALTER DATABASE SET is readable by every role: a password belongs into outbox.redis_password_file.",
							   &outbox_redis_url, "redis://127.0.0.1:6379/0",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, check_redis_url, NULL, NULL);
	DefineCustomStringVariable("outbox.redis_password_file",
							   "File that holds the password for Redis; read at each connect.",
							   NULL, &outbox_redis_password_file, "",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.connect_timeout",
							"Time allowed for connecting to Redis.",
							NULL, &outbox_connect_timeout, 5000, 10, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.command_timeout",
							"Time allowed for an answer of Redis.",
							NULL, &outbox_command_timeout, 10000, 10, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.stream_maxlen",
							"Approximate length to which streams are trimmed; 0 never trims.",
							NULL, &outbox_stream_maxlen, 0, 0, INT_MAX,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("outbox.redis_data_loss",
							 "What to do when Redis has lost our mark: send again what the log still has, or go on.",
							 NULL, &outbox_redis_data_loss, DATA_LOSS_REPLAY, data_loss_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
}

static void
define_dispatch_settings(void)
{
	DefineCustomBoolVariable("outbox.dispatch",
							 "Whether committed messages are published.",
							 NULL, &outbox_dispatch, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.takeover_delay",
							"How long nobody must have published before a copy of the server does.",
							NULL, &outbox_takeover_delay, 30, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.poll_interval",
							"How often the dispatcher looks for messages that did not wake it.",
							NULL, &outbox_poll_interval, 1000, 10, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.batch_size",
							"Messages sent to Redis in one step.",
							NULL, &outbox_batch_size, 500, 1, 10000,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.max_attempts",
							"How often a message that its destination refuses is tried before it is dead.",
							NULL, &outbox_max_attempts, 10, 1, INT_MAX,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.retry_delay",
							"Time until a refused message is tried again; doubles with each attempt.",
							NULL, &outbox_retry_delay, 1000, 10, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.retry_max_delay",
							"Longest time between two attempts.",
							NULL, &outbox_retry_max_delay, 5 * 60 * 1000, 10, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
}

static void
define_retention_settings(void)
{
	DefineCustomIntVariable("outbox.retention",
							"How long a record outlives the dispatch of its messages.",
							NULL, &outbox_retention, 7 * 24 * 3600, 1, INT_MAX,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.record_segment_size",
							"Size of a table of records from which on another one is written.",
							"A small one keeps the pages that are written few. What is full is compacted.",
							&outbox_record_segment_size, 4096, 64, 1024 * 1024,
							PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);
	if (process_shared_preload_libraries_in_progress)
		DefineCustomIntVariable("outbox.filter_memory",
								"Shared memory for filters, which tell that a message id is new without a look at the disk.",
								"Two bytes for each id that is remembered. Without them a look takes longer.",
								&outbox_filter_memory, 64 * 1024, 0, MAX_KILOBYTES,
								PGC_POSTMASTER, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.cleanup_interval",
							"How often expiry runs; -1 disables it.",
							NULL, &outbox_cleanup_interval, 60000, -1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.max_log_size",
							"Size of the log from which on messages are refused; 0 sets no limit.",
							"A Redis that is away for long must not fill the disk.",
							&outbox_max_log_size, 0, 0, MAX_KILOBYTES,
							PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.replay_window",
							"How long messages stay in the log after they were published.",
							NULL, &outbox_replay_window, 600, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
}

static bool
check_redis_url(char **newval, void **extra, GucSource source)
{
	RedisUrl	url;
	const char *reason = NULL;

	if (redis_url_parse(*newval, &url, &reason))
		return true;

	/* The default message would print the value, and with it a password. */
	GUC_check_errmsg("invalid value for parameter \"outbox.redis_url\"");
	GUC_check_errdetail("%s", reason);
	return false;
}

static bool
check_endpoint(char **newval, void **extra, GucSource source)
{
	if ((*newval)[0] != '\0')
		return true;
	GUC_check_errdetail("An endpoint name must not be empty.");
	return false;
}
