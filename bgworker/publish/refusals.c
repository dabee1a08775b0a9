/*
 * refusals.c
 *		The messages under way that Redis has refused.
 *
 * Called by delivery.c. When a message of a batch is refused, the batches behind it
 * in its lane are rejected; those of other lanes are not, and may have a refusal of
 * their own. So there is one for each lane at most. Nothing here talks to Redis or
 * writes a table.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/publish/refusals.h"

static MemoryContext context;
static RefusedRows *refusals;

/* Forgets all refusals. */
void
refusals_clear(void)
{
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "outbox refusals", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(context);
	refusals = NULL;
}

/* Adds what a verdict says of a batch; its lane goes back to the last message that was added. */
void
refusals_add(const Batch *batch, Run *run, const Verdict *verdict)
{
	int			n = verdict->is_forbidden ? batch->n : verdict->nrefused;
	RefusedRows *refusal = MemoryContextAlloc(context, offsetof(RefusedRows, rows) + n * sizeof(int64));
	char		fence[FENCE_BYTES];
	WindowPlace at = batch_fence_after(batch, run, verdict->added, fence);

	lane_expect(batch->lane, fence, at);
	refusal->next = refusals;
	refusal->lane = batch->lane;
	strlcpy(refusal->error, verdict->error, sizeof(refusal->error));
	refusal->is_unclear = verdict->is_forbidden;
	refusal->first_left = batch->rows[verdict->added] + (verdict->is_forbidden ? 0 : 1);
	refusal->n = n;
	for (int i = 0; i < n; i++)
		refusal->rows[i] = batch->rows[verdict->is_forbidden ? i : verdict->refused[i]];
	refusals = refusal;
}

/* Check whether a message of a lane was refused. */
bool
refusals_include(const Lane *lane)
{
	const RefusedRows *refusal = refusals;

	while (refusal && refusal->lane != lane)
		refusal = refusal->next;
	return refusal != NULL;
}

/* Returns the refusals. */
RefusedRows *
refusals_first(void)
{
	return refusals;
}

/* Returns the row with which sending goes on, when those that were refused are deferred. There must be a refusal. */
int64
refusals_first_left(void)
{
	int64		first = refusals->first_left;

	for (const RefusedRows *refusal = refusals->next; refusal; refusal = refusal->next)
		first = Min(first, refusal->first_left);
	return first;
}
