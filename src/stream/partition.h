/*
 * partition.h
 *		Which of the streams of a destination a message goes to.
 */
#ifndef OUTBOX_PARTITION_H
#define OUTBOX_PARTITION_H

#include "lib/stringinfo.h"

#include "src/log/log.h"

extern int	partition_of(const Message *message, int n);
extern void partition_write_stream(const text *stream, int partition, StringInfo name);

#endif							/* OUTBOX_PARTITION_H */
