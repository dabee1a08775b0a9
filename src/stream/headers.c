/*
 * headers.c
 *		Headers: what is allowed, and those that outbox.headers gives all messages.
 *
 * headers_check() is for what applications pass. The hooks of outbox.headers, in
 * settings.c, come here too: a value is checked and parsed when it is set, and
 * PostgreSQL keeps what was made of it as long as the value is in force.
 */
#include "postgres.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "src/compat.h"
#include "src/stream/entry.h"
#include "src/stream/headers.h"

static const char *const reserved[] = {"id", "time", "body", "cause", "key"};

/* What is made of a value of outbox.headers. */
typedef struct Setting
{
	bool		utf8_is_possible;	/* whether that was checked */
	Jsonb		headers;		/* of variable length, the last field */
} Setting;

static Setting *setting;		/* NULL = there are no headers */
static const char *unread;		/* a value that nothing was made of yet; NULL
								 * = there is none */
static Setting *read_late;		/* what was made of such a value last */

static void check_rules(Jsonb *headers);
static void check_header(const JsonbValue *name, const JsonbValue *value);
static bool has_no_encoding(const char *value);
static void check_late(void);
static void read_unread(void);
static void name_setting(void *arg);
static Jsonb *try_to_read_setting(const char *value, bool utf8_is_possible);
static Jsonb *read_setting(const char *value, bool utf8_is_possible);
static bool is_about_value(int sqlerrcode);
static bool can_convert(void);

/*
 * Checks headers and returns them: each becomes a field of the entry, so the
 * object must be flat. Raises 22023, 54000 or the error of a conversion to UTF-8.
 */
Jsonb *
headers_check(Jsonb *headers)
{
	check_rules(headers);
	entry_check_headers(headers);
	return headers;
}

/* Raises 22023 if a header may not have this name. */
void
headers_check_name(const char *name)
{
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the name of a header must not be empty")));
	for (int i = 0; i < lengthof(reserved); i++)
	{
		if (strcmp(name, reserved[i]) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("header \"%s\" is reserved", name),
					 errdetail("Messages have a field of this name.")));
	}
}

/*
 * A GucStringCheckHook. Outside of a transaction, as when postgresql.conf is read
 * again, nothing can be converted; then that is checked at the first use. A value
 * with characters that the process cannot have at all is read then as well.
 */
bool
headers_check_setting(char **newval, void **extra, GucSource source)
{
	bool		utf8_is_possible = can_convert();
	Jsonb	   *headers;
	Setting    *made;

	if ((*newval)[0] == '\0' || has_no_encoding(*newval))
		return true;
	headers = try_to_read_setting(*newval, utf8_is_possible);
	if (headers == NULL)
		return false;
	if (JB_ROOT_COUNT(headers) == 0)
		return true;
	made = compat_guc_malloc(offsetof(Setting, headers) + VARSIZE(headers));
	if (made == NULL)
		return false;
	made->utf8_is_possible = utf8_is_possible;
	memcpy(&made->headers, headers, VARSIZE(headers));
	*extra = made;
	return true;
}

/* A GucStringAssignHook. */
void
headers_assign_setting(const char *newval, void *extra)
{
	setting = extra;
	unread = extra == NULL && newval[0] != '\0' ? newval : NULL;
}

/*
 * Adds the headers of outbox.headers to a message; its own count where both have
 * one. Raises an error if it then has too many.
 */
void
headers_add_setting(Message *message)
{
	if (unread != NULL || (setting != NULL && !setting->utf8_is_possible))
		check_late();
	if (setting == NULL)
		return;
	if (message->headers == NULL || JB_ROOT_COUNT(message->headers) == 0)
	{
		message->headers = &setting->headers;
		return;
	}
	message->headers = DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(&setting->headers),
														  JsonbPGetDatum(message->headers)));
	entry_check_headers(message->headers);
}

/*
 * Check whether a value has escapes of Unicode characters in a process that has no
 * database, and so no encoding to read them in: the postmaster, whose settings new
 * sessions start with.
 */
static bool
has_no_encoding(const char *value)
{
	return !OidIsValid(MyDatabaseId) && strstr(value, "\\u") != NULL;
}

/* Does what could not be done when the value was set. Raises an error, which names the setting, if it is wrong. */
static void
check_late(void)
{
	ErrorContextCallback context = {error_context_stack, name_setting, NULL};

	error_context_stack = &context;
	if (unread != NULL)
		read_unread();
	else
	{
		entry_check_headers(&setting->headers);
		setting->utf8_is_possible = true;
	}
	error_context_stack = context.previous;
}

/* Reads the value that was not read when it was set. */
static void
read_unread(void)
{
	Jsonb	   *headers = read_setting(unread, true);
	Setting    *made = MemoryContextAlloc(TopMemoryContext, offsetof(Setting, headers) + VARSIZE(headers));

	made->utf8_is_possible = true;
	memcpy(&made->headers, headers, VARSIZE(headers));
	if (read_late != NULL)
		pfree(read_late);
	read_late = made;
	setting = JB_ROOT_COUNT(headers) > 0 ? made : NULL;
	unread = NULL;
}

/* An error context callback. */
static void
name_setting(void *arg)
{
	errcontext("setting \"outbox.headers\"");
}

/* Checks names and values, but not what they are when they are sent. */
static void
check_rules(Jsonb *headers)
{
	JsonbIterator *iterator = field_open_headers(headers);
	JsonbValue	name;
	JsonbValue	value;

	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &value, true);
		check_header(&name, &value);
	}
}

/* Checks one header: its name, and that its value has no structure. */
static void
check_header(const JsonbValue *name, const JsonbValue *value)
{
	char	   *key = pnstrdup(name->val.string.val, name->val.string.len);

	headers_check_name(key);
	if (value->type != jbvString && value->type != jbvNumeric && value->type != jbvBool)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("header \"%s\" must be a string, a number or a boolean", key)));
	pfree(key);
}

/*
 * Reads and checks a value of outbox.headers. Returns NULL if it is wrong, and has
 * said why: an error raised while postgresql.conf is read would end the server.
 * What is called here leaves nothing behind but memory.
 */
static Jsonb *
try_to_read_setting(const char *value, bool utf8_is_possible)
{
	MemoryContext caller = CurrentMemoryContext;
	Jsonb	   *volatile headers = NULL;

	PG_TRY();
	{
		headers = read_setting(value, utf8_is_possible);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		if (!is_about_value(error->sqlerrcode))
			PG_RE_THROW();
		FlushErrorState();
		GUC_check_errmsg("invalid value for parameter \"outbox.headers\": %s", error->message);
		if (error->detail)
			GUC_check_errdetail("%s", error->detail);
	}
	PG_END_TRY();
	return headers;
}

/* Reads and checks a value of outbox.headers; also how it is sent, if it can be converted now. */
static Jsonb *
read_setting(const char *value, bool utf8_is_possible)
{
	Jsonb	   *headers = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(value)));

	check_rules(headers);
	if (utf8_is_possible)
		entry_check_headers(headers);
	return headers;
}

/* Check whether an error says that a value is wrong. */
static bool
is_about_value(int sqlerrcode)
{
	int			category = ERRCODE_TO_CATEGORY(sqlerrcode);

	return category == ERRCODE_DATA_EXCEPTION || category == ERRCODE_PROGRAM_LIMIT_EXCEEDED ||
		sqlerrcode == ERRCODE_FEATURE_NOT_SUPPORTED || sqlerrcode == ERRCODE_SYNTAX_ERROR;
}

/* Check whether text can be converted to UTF-8 now. */
static bool
can_convert(void)
{
	return IsTransactionState() || GetDatabaseEncoding() == PG_UTF8;
}
