/*
 * postgres_url.c
 *		The URL of a PostgreSQL database, as parameters for libpq.
 *
 * Called by store_postgres.c and postgres_link.c. Host names are looked up by
 * resolver.c, because libpq would block.
 */
#include "postgres.h"

#include "libpq-fe.h"

#include "lib/stringinfo.h"

#include "src/clock.h"
#include "src/redis/resolver.h"
#include "src/settings.h"
#include "src/store/postgres_url.h"

#define CHECK_CLIENT_MS	1000	/* how often a session there checks that we
								 * are still connected */

static bool resolve_host(const char *host, TimestampTz deadline, LinkAttend attend, StoreFailure *failure,
						 Addresses *addresses);
static const char **find_value(PostgresUrl *url, const char *name);
static char *next_item(char **list);
static int	count_items(const char *list);

/* Check whether a URL has the scheme of PostgreSQL, whether it is valid or not. */
bool
postgres_url_has_scheme(const char *text)
{
	return strncmp(text, "postgresql://", 13) == 0 || strncmp(text, "postgres://", 11) == 0;
}

/*
 * Returns what is wrong with a URL, or NULL. The message of libpq may quote a
 * password, so ours says less.
 */
const char *
postgres_url_problem(const char *text)
{
	PQconninfoOption *options = PQconninfoParse(text, NULL);
	const char *path = strchr(strstr(text, "://") + 3, '/');
	bool		has_service = false;

	if (options == NULL)
		return "It is not a valid URL of a PostgreSQL database.";
	for (PQconninfoOption *option = options; option->keyword; option++)
		has_service |= strcmp(option->keyword, "service") == 0 && option->val != NULL;
	PQconninfoFree(options);

	/*
	 * The name of its host would be resolved by libpq, which waits for that.
	 */
	if (has_service)
		return "It names a service. It must name the host and the database themselves.";

	/*
	 * After a slash in a password the rest would be taken for the name of the
	 * database.
	 */
	if (path && memchr(path, '@', strcspn(path, "?")))
		return "In a password \"/\" must be written as \"%2F\", and after the host \"@\" must be written as \"%40\".";
	return NULL;
}

/* Check whether two URLs are the same but for passwords. */
bool
postgres_url_differs_in_password(const char *one, const char *other)
{
	PQconninfoOption *options = PQconninfoParse(one, NULL);
	PQconninfoOption *others = PQconninfoParse(other, NULL);
	bool		same = options && others;

	for (int i = 0; same && options[i].keyword; i++)
	{
		if (strcmp(options[i].keyword, "password") != 0 && strcmp(options[i].keyword, "sslpassword") != 0)
			same = options[i].val && others[i].val ? strcmp(options[i].val, others[i].val) == 0 :
				options[i].val == others[i].val;
	}
	PQconninfoFree(options);
	PQconninfoFree(others);
	return same;
}

/*
 * Parses a URL. Returns false if it is invalid. Copies all values, so that
 * nothing of libpq must be freed later.
 */
bool
postgres_url_parse(const char *text, PostgresUrl *url)
{
	PQconninfoOption *options = PQconninfoParse(text, NULL);

	if (options == NULL)
		return false;
	for (PQconninfoOption *option = options; option->keyword && url->n < POSTGRES_MAX_OPTIONS - 5; option++)
	{
		if (option->val == NULL)
			continue;
		url->names[url->n] = pstrdup(option->keyword);
		url->values[url->n++] = pstrdup(option->val);
	}
	PQconninfoFree(options);
	*find_value(url, "client_encoding") = "UTF8";
	if (*find_value(url, "fallback_application_name") == NULL)
		*find_value(url, "fallback_application_name") = "outbox";
	return true;
}

/*
 * Adds settings that limit the session: it cancels a query when we give it up, and
 * notices when we have disconnected. Otherwise the query would go on there, perhaps
 * waiting for a lock, with the next one beside it. And warnings are sent, whatever the
 * role there prefers. Values of the same settings in the URL come later and take precedence.
 */
void
postgres_url_limit(PostgresUrl *url)
{
	const char **options = find_value(url, "options");

	*options = psprintf("-c statement_timeout=%d -c client_connection_check_interval=%d -c client_min_messages=warning %s",
						outbox_command_timeout, CHECK_CLIENT_MS, *options ? *options : "");
}

/*
 * Looks up host names, so that libpq need not: it does not look up a name that has
 * an address. Each name is repeated for each of its addresses, with its port. A
 * name without an address is omitted if another one has one. No lookup gets more
 * than its share of the time, so that some is left for connecting.
 */
bool
postgres_url_resolve(PostgresUrl *url, TimestampTz deadline, LinkAttend attend, StoreFailure *failure)
{
	const char **hosts = find_value(url, "host");
	const char **ports = find_value(url, "port");
	const char **found = find_value(url, "hostaddr");
	char	   *host_list;
	char	   *port_list;
	char	   *port = "";
	StringInfoData new_hosts;
	StringInfoData new_ports;
	StringInfoData addresses;

	if (*hosts == NULL || *found != NULL)
		return true;
	initStringInfo(&new_hosts);
	initStringInfo(&new_ports);
	initStringInfo(&addresses);
	host_list = pstrdup(*hosts);
	port_list = *ports ? pstrdup(*ports) : NULL;

	for (char *host = next_item(&host_list); host; host = next_item(&host_list))
	{
		Addresses	of_host;

		/* One port may be given for all hosts. */
		if (port_list)
			port = next_item(&port_list);
		if (!resolve_host(host, clock_share(deadline, count_items(host_list) + 2), attend, failure, &of_host))
			continue;
		for (int i = 0; i < of_host.n; i++)
		{
			const char *separator = url->naddresses++ > 0 ? "," : "";

			appendStringInfo(&new_hosts, "%s%s", separator, host);
			appendStringInfo(&new_ports, "%s%s", separator, port);
			appendStringInfo(&addresses, "%s%s", separator, of_host.text[i]);
		}
	}
	url->hosts = new_hosts.data;
	url->ports = new_ports.data;
	url->addresses = addresses.data;
	return url->naddresses > 0;
}

/* Looks up the addresses of a host: one that is empty if it is a path or the default. */
static bool
resolve_host(const char *host, TimestampTz deadline, LinkAttend attend, StoreFailure *failure, Addresses *addresses)
{
	const char *problem;

	*addresses = (Addresses) {.n = 1};
	if (host[0] == '\0' || host[0] == '/' || host[0] == '@')
		return true;
	problem = resolver_find(host, deadline, attend, addresses);
	if (problem)
		store_failure_set(failure, ERRCODE_CONNECTION_FAILURE, "could not look up the host: %s", problem);
	return problem == NULL;
}

/* Replaces all hosts by the next address that was found. */
void
postgres_url_next_address(PostgresUrl *url)
{
	*find_value(url, "host") = next_item(&url->hosts);
	*find_value(url, "port") = next_item(&url->ports);
	*find_value(url, "hostaddr") = next_item(&url->addresses);
}

/* Returns where the value of a parameter is, or where to put it. */
static const char **
find_value(PostgresUrl *url, const char *name)
{
	for (int i = 0; i < url->n; i++)
	{
		if (strcmp(url->names[i], name) == 0)
			return &url->values[i];
	}
	url->names[url->n] = name;
	url->values[url->n] = NULL;
	return &url->values[url->n++];
}

/* Cuts the first item off a list with commas; returns NULL if nothing is left. */
static char *
next_item(char **list)
{
	char	   *item = *list;
	char	   *comma = item ? strchr(item, ',') : NULL;

	*list = comma ? comma + 1 : NULL;
	if (comma)
		*comma = '\0';
	return item;
}

/* Returns how many items a list with commas has; NULL has none. */
static int
count_items(const char *list)
{
	int			n = 0;

	while (list)
	{
		n++;
		list = strchr(list, ',');
		if (list)
			list++;
	}
	return n;
}
