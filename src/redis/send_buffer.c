/*
 * send_buffer.c
 *		Bytes on their way to a socket, in memory that grows and shrinks.
 *
 * Called by redis_link.c, whose buffers these are, and by command.c, which fills
 * one of its own. A buffer is a StringInfo in TopMemoryContext; what lies before its
 * cursor has been sent. Nothing here sends, or knows what the bytes mean.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "src/redis/send_buffer.h"

#define KEPT_BUFFER		(4 * 1024 * 1024)	/* the memory of a larger one is
											 * freed */

/* Returns how many bytes have not been sent yet. */
size_t
send_buffer_unsent(const StringInfoData *buffer)
{
	return buffer->len - buffer->cursor;
}

/*
 * Puts what `from` has from its cursor on behind what `to` has, and empties `from`.
 * It is copied only if `to` has something; otherwise they change places.
 */
void
send_buffer_move(StringInfo to, StringInfo from)
{
	if (to->len > 0)
		appendBinaryStringInfo(to, from->data + from->cursor, send_buffer_unsent(from));
	else
	{
		StringInfoData empty = *to;

		*to = *from;
		*from = empty;
	}
	send_buffer_empty(from);
}

/* Empties a buffer; if it has become large, its memory is freed. */
void
send_buffer_empty(StringInfo buffer)
{
	send_buffer_shrink(buffer, KEPT_BUFFER);
}

/* The same if it has become larger than that. */
void
send_buffer_shrink(StringInfo buffer, int kept)
{
	if (buffer->maxlen > kept)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

		pfree(buffer->data);
		initStringInfo(buffer);
		MemoryContextSwitchTo(caller);
	}
	else
		resetStringInfo(buffer);
}
