/*
 * masked_url.c
 *		Takes the passwords out of the URL of a store.
 *
 * Called by store.c and store_propagation.c for what they report and log, and by
 * views through outbox.mask_store(). A URL of a store must be shown no other
 * way. What cannot be told from a password is masked as well.
 */
#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "src/store/masked_url.h"

#define MASK			"***"

/* What the names of parameters contain that are secrets, such as scram_client_key and oauth_client_secret of libpq 18. */
static const char *const secrets[] = {"password", "secret", "_key"};

static void append_masked_query(StringInfo masked, const char *query);

PG_FUNCTION_INFO_V1(outbox_mask_store);

/* Returns the URL as it may be shown, without passwords; palloc'd. */
char *
masked_url(const char *url)
{
	const char *scheme_end = strstr(url, "://");
	const char *from = scheme_end ? scheme_end + 3 : url;
	const char *end = from + strcspn(from, "/");
	const char *at = NULL;
	const char *secret = NULL;
	StringInfoData masked;

	for (const char *c = from; c < end; c++)
	{
		if (*c == '@')
			at = c;
	}
	initStringInfo(&masked);

	/* A password may contain anything but a slash. */
	if (at)
		secret = from + strcspn(from, ":?@");
	appendBinaryStringInfo(&masked, url, (secret ? secret : from) - url);
	if (secret && secret < at)
		appendStringInfo(&masked, "%c%s", *secret, MASK);
	if (at)
		from = at;
	end = from + strcspn(from, "?&");
	appendBinaryStringInfo(&masked, from, end - from);
	append_masked_query(&masked, end);
	return masked.data;
}

/* outbox.mask_store(url) */
Datum
outbox_mask_store(PG_FUNCTION_ARGS)
{
	/* STRICT is up to the owner of the function. */
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(masked_url(text_to_cstring(PG_GETARG_TEXT_PP(0)))));
}

/* Masks the values of parameters whose names suggest a secret: "?a=b&password=c". */
static void
append_masked_query(StringInfo masked, const char *query)
{
	while (*query != '\0')
	{
		const char *name = query + 1;
		const char *name_end = name + strcspn(name, "=&");
		const char *end = name + strcspn(name, "&");
		bool		is_secret = false;

		for (const char *c = name; c < name_end; c++)
		{
			for (int i = 0; i < lengthof(secrets); i++)
				is_secret |= pg_strncasecmp(c, secrets[i], strlen(secrets[i])) == 0;
		}

		/* A name with escapes may be one, too. */
		is_secret |= memchr(name, '%', name_end - name) != NULL;
		if (is_secret)
			appendStringInfo(masked, "%.*s=%s", (int) (name_end - query), query, MASK);
		else
			appendBinaryStringInfo(masked, query, end - query);
		query = end;
	}
}
