/*
 * stream_mapping.h
 *		To which stream the messages of a destination go, by the window that they are in.
 */
#ifndef OUTBOX_STREAM_MAPPING_H
#define OUTBOX_STREAM_MAPPING_H

typedef struct StreamMapping
{
	int64		after_window;	/* it holds for the windows behind this one */
	text	   *stream;			/* NULL = the name of the destination */
	int			partitions;		/* streams that messages are spread over; 0 =
								 * one, without a number */
	struct StreamMapping *former;
} StreamMapping;

extern void stream_mapping_begin(bool kept);
extern bool stream_mapping_is_kept(void);
extern void stream_mapping_load(void);
extern const StreamMapping *stream_mapping_find(const text *dest, int64 window);
extern bool stream_mapping_is_over(const text *dest, int64 window, int64 published);
extern bool stream_mapping_note(int64 touched);

#endif							/* OUTBOX_STREAM_MAPPING_H */
