/*
 * id_list.c
 *		A list of message ids that is filled and emptied repeatedly.
 *
 * Used by marking.c and marking_progress.c. Each has a memory context of its own, so
 * emptying it costs nothing per id.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/propagate/id_list.h"

static void reverse(char **items, int n);

/* Makes an empty list, in TopMemoryContext. */
void
id_list_init(IdList *list)
{
	*list = (IdList) {0};
	list->context = AllocSetContextCreate(TopMemoryContext, "outbox ids", ALLOCSET_DEFAULT_SIZES);
}

/* Adds a copy of an id. */
void
id_list_add(IdList *list, const char *msgid)
{
	MemoryContext caller = MemoryContextSwitchTo(list->context);

	if (list->n == list->size)
	{
		list->size = list->size ? list->size * 2 : 64;
		list->items = list->items ?
			repalloc(list->items, list->size * sizeof(char *)) : palloc(list->size * sizeof(char *));
	}
	list->items[list->n++] = pstrdup(msgid);
	MemoryContextSwitchTo(caller);
}

/* Moves the first `n` ids to the end. */
void
id_list_rotate(IdList *list, int n)
{
	reverse(list->items, n);
	reverse(list->items + n, list->n - n);
	reverse(list->items, list->n);
}

/* Removes all ids, and frees their memory. */
void
id_list_empty(IdList *list)
{
	MemoryContextReset(list->context);
	list->items = NULL;
	list->n = list->size = 0;
}

/* Frees a list, which must be initialized before it is used again. */
void
id_list_free(IdList *list)
{
	MemoryContextDelete(list->context);
}

/* Reverses the order of n ids. */
static void
reverse(char **items, int n)
{
	for (int i = 0, j = n - 1; i < j; i++, j--)
	{
		char	   *item = items[i];

		items[i] = items[j];
		items[j] = item;
	}
}
