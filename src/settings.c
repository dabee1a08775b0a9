/*
 * settings.c
 *		All outbox.* settings, with their defaults, limits and check hooks.
 *
 * Called once by _PG_init. Settings that only the dispatcher uses are PGC_SUSET
 * rather than PGC_SIGHUP so that ALTER DATABASE ... SET can give each database
 * its own.
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "src/limits.h"
#include "src/redis/redis_url.h"
#include "src/settings.h"
#include "src/stream/headers.h"

char	   *outbox_redis_url;
char	   *outbox_redis_password_file;
char	   *outbox_redis_sentinel_password_file;
char	   *outbox_redis_tls_ca_file;
char	   *outbox_redis_tls_cert_file;
char	   *outbox_redis_tls_key_file;
char	   *outbox_redis_tls_server_name;
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
int			outbox_max_dispatch_delay;
int			outbox_max_attempts;
int			outbox_retry_delay;
int			outbox_retry_max_delay;
int			outbox_connect_timeout;
int			outbox_command_timeout;
int			outbox_replay_window;
int			outbox_max_log_size;
int			outbox_stream_maxlen;
int			outbox_redis_data_loss;

/* As it was set; headers.c has what was made of it. */
static char *headers_setting;

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
static void define_tls_settings(void);
static void define_dispatch_settings(void);
static void define_retention_settings(void);
static bool check_redis_url(char **newval, void **extra, GucSource source);
static bool check_endpoint(char **newval, void **extra, GucSource source);

/*
 * Defines all settings and reserves their prefix.
 *
 * Values in postgresql.conf have not been checked until now. If one is wrong,
 * PostgreSQL warns and uses the default. That is not acceptable for the two
 * settings that decide where messages go: the server would send them to a Redis
 * at the default URL, or a copy that must not send would do so. So the server
 * does not start then, as with a wrong value of a setting of PostgreSQL itself.
 */
void
settings_define(void)
{
	const char *url = value_in_file("outbox.redis_url");
	const char *dispatch = value_in_file("outbox.dispatch");
	bool		ignored;

	define_callers_settings();
	define_redis_settings();
	define_tls_settings();
	define_dispatch_settings();
	define_retention_settings();
	MarkGUCPrefixReserved("outbox");

	if (url && strcmp(url, outbox_redis_url) != 0)
		refuse_to_start("outbox.redis_url");
	if (dispatch && !parse_bool(dispatch, &ignored))
		refuse_to_start("outbox.dispatch");
}

/*
 * Returns the unchecked value that a server which is starting has read; NULL if
 * there is none, or it is not starting.
 */
static const char *
value_in_file(const char *name)
{
	const char *value;

	if (!process_shared_preload_libraries_in_progress || IsUnderPostmaster)
		return NULL;
	value = GetConfigOption(name, true, false);
	return value ? pstrdup(value) : NULL;
}

/* Raises the error that ends the start. The value is not shown, because it may contain a password. */
static void
refuse_to_start(const char *name)
{
	ereport(FATAL,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for parameter \"%s\"", name),
			 errdetail("With the default, messages might be sent where they must not go."),
			 errhint("Correct it in the configuration, and start the server again.")));
}

/*
 * Gives a setting of PostgreSQL another value until AtEOXact_GUC() ends the level of
 * NewGUCNestLevel() that the caller has begun, or the (sub)transaction ends. Raises
 * the error of a value that is wrong.
 */
void
settings_override(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/* Finds the concurrency with that name. Returns false if there is none. */
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
							   "Sets the endpoint that outbox_begin() uses if none is given.",
							   NULL, &outbox_endpoint, "default",
							   PGC_USERSET, 0, check_endpoint, NULL, NULL);
	DefineCustomEnumVariable("outbox.concurrency",
							 "Sets whether a message is claimed by outbox_commit() (optimistic) or by outbox_begin() (pessimistic).",
							 NULL, &outbox_concurrency, CONCURRENCY_OPTIMISTIC, concurrency_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("outbox.headers",
							   "Sets the headers that are added to each message enqueued or sent while the setting is in force.",
							   "A JSON object, as the argument \"headers\" is. A header that the message has itself replaces one of the same name.",
							   &headers_setting, "",
							   PGC_USERSET, 0, headers_check_setting, headers_assign_setting, NULL);
}

static void
define_redis_settings(void)
{
	DefineCustomStringVariable("outbox.redis_url",
							   "Sets the URL of the Redis server or cluster that messages are published to.",
							   "redis://[[user][:password]@]host[:port][/db], unix:///path, redis+sentinel://host[:port],.../master or redis+cluster://host[:port],...; rediss instead of redis for TLS. "
							   "Every role can read what ALTER DATABASE SET has set: put a password into the file of outbox.redis_password_file.",
							   &outbox_redis_url, "redis://127.0.0.1:6379/0",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, check_redis_url, NULL, NULL);
	DefineCustomStringVariable("outbox.redis_password_file",
							   "Sets the file that contains the password for Redis.",
							   "The file is read for each new connection.", &outbox_redis_password_file, "",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomStringVariable("outbox.redis_sentinel_password_file",
							   "Sets the file that contains the password for the sentinels of outbox.redis_url.",
							   "The file is read for each new connection.", &outbox_redis_sentinel_password_file, "",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.connect_timeout",
							"Sets the maximum time to wait for a connection to Redis.",
							NULL, &outbox_connect_timeout, 5000, 10, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.command_timeout",
							"Sets the maximum time to wait for a reply from Redis.",
							NULL, &outbox_command_timeout, 10000, 10, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.stream_maxlen",
							"Sets the approximate length to which streams are trimmed.",
							"0 means that they are never trimmed.", &outbox_stream_maxlen, 0, 0, INT_MAX,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("outbox.redis_data_loss",
							 "Sets what to do if Redis has lost the fence: send again what the log still has (replay), or go on (resume).",
							 NULL, &outbox_redis_data_loss, DATA_LOSS_REPLAY, data_loss_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
}

/* They hold for every Redis whose URL asks for TLS: also for stores, and for sentinels. */
static void
define_tls_settings(void)
{
	DefineCustomStringVariable("outbox.redis_tls_ca_file",
							   "Sets the file with the certificates of the authorities that are trusted to certify Redis.",
							   "Empty means those that the system trusts. The file is read for each new connection.",
							   &outbox_redis_tls_ca_file, "",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomStringVariable("outbox.redis_tls_cert_file",
							   "Sets the file with the certificate that is shown to Redis.",
							   "The file is read for each new connection.", &outbox_redis_tls_cert_file, "",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomStringVariable("outbox.redis_tls_key_file",
							   "Sets the file with the private key of outbox.redis_tls_cert_file.",
							   "The file is read for each new connection.", &outbox_redis_tls_key_file, "",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomStringVariable("outbox.redis_tls_server_name",
							   "Sets the name that the certificate of Redis must be for.",
							   "Empty means the host of the URL, or the address that a sentinel names.",
							   &outbox_redis_tls_server_name, "",
							   PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
}

static void
define_dispatch_settings(void)
{
	DefineCustomBoolVariable("outbox.dispatch",
							 "Enables publishing of committed messages.",
							 NULL, &outbox_dispatch, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.takeover_delay",
							"Sets how long the lease must be vacant before a copy of the server publishes.",
							NULL, &outbox_takeover_delay, 30, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.poll_interval",
							"Sets how often the dispatcher looks for messages that did not wake it.",
							NULL, &outbox_poll_interval, 1000, 10, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.batch_size",
							"Sets the maximum number of messages sent to Redis in one step.",
							NULL, &outbox_batch_size, 500, 1, MAX_BATCH_SIZE,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.max_dispatch_delay",
							"Sets the maximum pause between two windows while the processors are busy.",
							"Fewer and larger windows leave more of the processors to the callers.",
							&outbox_max_dispatch_delay, 5, 1, 100,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.max_attempts",
							"Sets the number of attempts after which a message that its destination refuses is dead.",
							NULL, &outbox_max_attempts, 10, 1, INT_MAX,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.retry_delay",
							"Sets the time to wait before a refused message is tried again.",
							"It doubles with each attempt.", &outbox_retry_delay, 1000, 10, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.retry_max_delay",
							"Sets the maximum time between two attempts.",
							NULL, &outbox_retry_max_delay, 5 * 60 * 1000, 10, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
}

static void
define_retention_settings(void)
{
	DefineCustomIntVariable("outbox.retention",
							"Sets how long a record is kept after its messages were dispatched.",
							NULL, &outbox_retention, 7 * 24 * 3600, 1, INT_MAX,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.record_segment_size",
							"Sets the size of a record segment above which another one is written.",
							"Small segments cause few page writes. Full segments are compacted.",
							&outbox_record_segment_size, 4096, 64, 1024 * 1024,
							PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);
	if (process_shared_preload_libraries_in_progress)
		DefineCustomIntVariable("outbox.filter_memory",
								"Sets the amount of shared memory for filters, which recognize a new message id without reading tables.",
								"A filter takes two bytes for each id that is remembered. Without filters, lookups take longer.",
								&outbox_filter_memory, 64 * 1024, 0, MAX_KILOBYTES,
								PGC_POSTMASTER, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.cleanup_interval",
							"Sets the time between two runs of expiry.",
							"-1 disables expiry.", &outbox_cleanup_interval, 60000, -1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.max_log_size",
							"Sets the size of the log at which messages are refused.",
							"0 means no limit. A limit keeps the disk from filling while Redis is away.",
							&outbox_max_log_size, 0, 0, MAX_KILOBYTES,
							PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("outbox.replay_window",
							"Sets how long messages stay in the log after they were published.",
							NULL, &outbox_replay_window, 600, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
}

/* A GucStringCheckHook. */
static bool
check_redis_url(char **newval, void **extra, GucSource source)
{
	RedisUrl	url;
	const char *reason = NULL;

	if (redis_url_parse(*newval, &url, &reason))
		return true;

	/* The default message would show the value, which may contain a password. */
	GUC_check_errmsg("invalid value for parameter \"outbox.redis_url\"");
	GUC_check_errdetail("%s", reason);
	return false;
}

/* A GucStringCheckHook. */
static bool
check_endpoint(char **newval, void **extra, GucSource source)
{
	if ((*newval)[0] != '\0')
		return true;
	GUC_check_errdetail("An endpoint name must not be empty.");
	return false;
}
