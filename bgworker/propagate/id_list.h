/*
 * id_list.h
 *		A list of message ids that is filled and emptied repeatedly.
 */
#ifndef OUTBOX_ID_LIST_H
#define OUTBOX_ID_LIST_H

#include "utils/palloc.h"

typedef struct IdList
{
	MemoryContext context;
	char	  **items;
	int			n;
	int			size;			/* room */
} IdList;

extern void id_list_init(IdList *list);
extern void id_list_add(IdList *list, const char *msgid);
extern void id_list_rotate(IdList *list, int n);
extern void id_list_empty(IdList *list);
extern void id_list_free(IdList *list);

#endif							/* OUTBOX_ID_LIST_H */
