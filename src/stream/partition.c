/*
 * partition.c
 *		Which of the streams of a destination a message goes to.
 *
 * Called by route.c and outbox_send(). Consumers compute the same (see
 * docs/reference.md), so this must never change: the CRC-16/XMODEM of the key as
 * UTF-8, modulo the number of partitions.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "src/compat.h"
#include "src/crc16.h"
#include "src/stream/partition.h"

/*
 * Returns the partition of a message, from 0 to n - 1: that of its key, or that
 * of its id if it has none.
 */
int
partition_of(const Message *message, int n)
{
	const text *key = message->partition_key ? message->partition_key : message->message_id;
	const char *bytes = VARDATA_ANY(key);
	int			size = VARSIZE_ANY_EXHDR(key);
	char	   *converted = pg_server_to_any(bytes, size, PG_UTF8);
	int			partition = crc16(converted, converted == bytes ? size : strlen(converted)) % n;

	if (converted != bytes)
		pfree(converted);
	return partition;
}

/* Writes the name of a partition of a stream. */
void
partition_write_stream(const text *stream, int partition, StringInfo name)
{
	resetStringInfo(name);
	appendBinaryStringInfo(name, VARDATA_ANY(stream), VARSIZE_ANY_EXHDR(stream));
	appendStringInfo(name, ":%d", partition);
}
