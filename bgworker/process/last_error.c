/*
 * last_error.c
 *		Remembers the error that ends this process.
 *
 * Called by dispatcher_setup.c. An ERROR that is not caught is logged and ends the
 * process, and what is called at its exit cannot learn why. So the text is taken where
 * it is logged; one that is caught is never logged.
 *
 * It must never raise an error itself, nor keep one from being logged.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "bgworker/process/last_error.h"

static emit_log_hook_type previous_hook;
static char last[256];			/* empty = none */

static void note_error(ErrorData *error);

/* Begins to remember; called once, when the process starts. */
void
last_error_init(void)
{
	previous_hook = emit_log_hook;
	emit_log_hook = note_error;
}

/* Returns the text of the error that ends this process, for what is called at its exit; NULL if it ends for another reason. */
const char *
last_error_text(void)
{
	return last[0] == '\0' ? NULL : last;
}

/* An emit_log_hook. A FATAL is no failure of ours: the process was told to end. */
static void
note_error(ErrorData *error)
{
	if (error->elevel == ERROR && error->message)
	{
		int			length = pg_mbcliplen(error->message, strlen(error->message), sizeof(last) - 1);

		memcpy(last, error->message, length);
		last[length] = '\0';
	}
	if (previous_hook)
		previous_hook(error);
}
