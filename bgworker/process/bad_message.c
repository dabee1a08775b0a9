/*
 * bad_message.c
 *		Which errors are the fault of the message that is being read or written.
 *
 * Called by page.c and due_messages.c after an error: a message that cannot be read is
 * deferred, like one that Redis refuses.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/memutils.h"

#include "bgworker/process/bad_message.h"
#include "bgworker/process/transaction.h"

static bool concerns_message(int sqlerrcode);

/*
 * Rolls back after an error that was caught while working on one message; its
 * text is copied to `error`. An error that concerns the server rather than the
 * message is raised again: no stored message may end this process, but none may
 * be blamed for a full disk either.
 */
void
bad_message_abort(char *error, size_t size)
{
	ErrorData  *data;
	int			length;

	MemoryContextSwitchTo(TopMemoryContext);
	data = CopyErrorData();
	if (!concerns_message(data->sqlerrcode))
		PG_RE_THROW();
	FlushErrorState();
	length = pg_mbcliplen(data->message, strlen(data->message), size - 1);
	memcpy(error, data->message, length);
	error[length] = '\0';
	FreeErrorData(data);
	transaction_abort();
}

/*
 * Check whether an error says that data are too large, cannot be converted, are
 * damaged or cannot be read from disk.
 */
static bool
concerns_message(int sqlerrcode)
{
	switch (ERRCODE_TO_CATEGORY(sqlerrcode))
	{
		case ERRCODE_DATA_EXCEPTION:
		case ERRCODE_PROGRAM_LIMIT_EXCEEDED:
		case ERRCODE_INTERNAL_ERROR:
			return true;
		default:
			return sqlerrcode == ERRCODE_IO_ERROR;
	}
}
