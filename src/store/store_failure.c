/*
 * store_failure.c
 *		Notes why a deduplication store could not be used.
 *
 * Called by store.c and by the kinds of stores. A failure is a result there: whether
 * it becomes an error is for the caller to decide.
 */
#include "postgres.h"

#include "src/foreign_text.h"
#include "src/store/store_failure.h"

/* Sets the SQLSTATE, in case it becomes an error, and the reason, which may quote text from the store. */
void
store_failure_set(StoreFailure *failure, int sqlstate, const char *format,...)
{
	va_list		args;

	failure->sqlstate = sqlstate;
	va_start(args, format);
	foreign_text_format(failure->text, sizeof(failure->text), format, args);
	va_end(args);

	/* A server may have sent an empty text. */
	if (failure->text[strspn(failure->text, " ")] == '\0')
		strlcpy(failure->text, "it gave no reason", sizeof(failure->text));
}
