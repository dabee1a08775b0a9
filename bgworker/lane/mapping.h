/*
 * mapping.h
 *		To which stream the messages of a destination go, by the window that they are in.
 */
#ifndef OUTBOX_MAPPING_H
#define OUTBOX_MAPPING_H

typedef struct Mapping
{
	int64		after_window;	/* it holds for the windows behind this one */
	text	   *stream;			/* NULL = the name of the destination */
	int			partitions;		/* streams that messages are spread over; 0 =
								 * one, without a number */
	struct Mapping *former;
} Mapping;

extern void mapping_begin(bool kept);
extern bool mapping_is_kept(void);
extern void mapping_load(void);
extern const Mapping *mapping_find(const text *dest, int64 window);
extern bool mapping_is_over(const text *dest, int64 window, int64 published);
extern bool mapping_note(int64 touched);

#endif							/* OUTBOX_MAPPING_H */
