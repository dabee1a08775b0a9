/*
 * redis_hint.c
 *		What an administrator can do about an error of Redis.
 *
 * Called by redis_state.c and blocked_slots.c, for the views. Whether an error concerns
 * Redis or a message is decided elsewhere (batch_verdict.c).
 */
#include "postgres.h"

#include "bgworker/connection/redis_hint.h"

#define CORRECT_LOGIN	"Correct the user in outbox.redis_url, and the password there or, if outbox.redis_password_file is set, in that file."
#define AGREE_ON_LOGIN	"Set the password in that server again (requirepass), or remove it from outbox.redis_url, and reset the setting of the file that it is in."
#define NAME_TLS_PORT	"outbox.redis_url must name the port that Redis has for TLS (tls-port), or begin with \"redis\" if it has none."
#define CORRECT_TLS		"Correct the certificates, outbox.redis_url, or the settings outbox.redis_tls_ca_file, _cert_file, _key_file and _server_name."

#define CLOSE_SLOT		"The hash slot is being moved to another node. If the move was abandoned, run redis-cli --cluster fix; with Valkey, which may lose keys by that, move the rest by hand."
#define RESTORE_NODES	"Restart the nodes of the cluster that are down, or assign their hash slots to other nodes."

/*
 * Scripts of Redis 7.0 say "The user executing the script can't", those of newer servers
 * "ACL failure in script".
 */
#define GRANT_PERMISSIONS	"Give the user in Redis the permissions that it lacks; docs/operations.md has the command."

/* What to do about an error of Redis that has these words in it; the first that fits counts. */
static const struct
{
	const char *words;
	const char *hint;
}			hints[] = {
	{"the file of outbox.redis", "Correct the file, its owner and mode."},
	{"WRONGPASS", CORRECT_LOGIN},
	{"NOAUTH", CORRECT_LOGIN},
	{"without any password configured", AGREE_ON_LOGIN},
	{"NOPERM ", GRANT_PERMISSIONS},
	{"The user executing the script can't", GRANT_PERMISSIONS},
	{"ACL failure in script", GRANT_PERMISSIONS},
	{"max number of clients", "Raise maxclients of Redis, or end connections that are not needed."},
	{"may expect TLS", "Correct the address in outbox.redis_url, or begin it with \"rediss\" if the server expects TLS."},
	{"expects TLS", "To connect with TLS, outbox.redis_url must begin with \"rediss\"."},
	{"may not speak it", NAME_TLS_PORT},
	{"does not speak TLS", NAME_TLS_PORT},
	{"with TLS", CORRECT_TLS},
	{"certificate", CORRECT_TLS},
	{"OOM command", "Trim streams, or raise maxmemory of Redis."},
	{"READONLY ", "Use the address of the master in outbox.redis_url."},
	{"it is a replica", "Use the address of the master in outbox.redis_url."},
	{"MISCONF ", "Repair the disk that Redis writes to."},
	{"TRYAGAIN ", CLOSE_SLOT},
	{"ASK ", CLOSE_SLOT},
	{"is torn between", CLOSE_SLOT},
	{"CLUSTERDOWN ", RESTORE_NODES},
	{"serves the hash slot", RESTORE_NODES},
	{"cluster support disabled", "This is a single Redis, so outbox.redis_url must begin with \"redis://\"."},
	{"no file descriptor is free", "Raise max_files_per_process."},
	{"NOREPLICAS ", "Start the replicas of this master that are down, or give it another one."},
};

/* Returns what to do about an error, as one or two sentences. */
const char *
redis_hint(const char *error)
{
	for (int i = 0; i < lengthof(hints); i++)
	{
		if (strstr(error, hints[i].words))
			return hints[i].hint;
	}
	return "Repair Redis, or correct outbox.redis_url by ALTER SYSTEM and a reload, or by ALTER DATABASE where that has set it.";
}
