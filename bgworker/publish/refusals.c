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
static const RefusedRows *refusals;

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
	RefusedRows *refusal = MemoryContextAlloc(context, offsetof(RefusedRows, rows) + verdict->nrefused * sizeof(int64));
	char		fence[FENCE_BYTES];
	WindowPlace at = batch_fence_after(batch, run, verdict->added, fence);

	lane_expect(batch->lane, fence, at);
	refusal->next = refusals;
	refusal->lane = batch->lane;
	strlcpy(refusal->error, verdict->error, sizeof(refusal->error));
	refusal->n = verdict->nrefused;
	for (int i = 0; i < verdict->nrefused; i++)
		refusal->rows[i] = batch->rows[verdict->refused[i]];
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
const RefusedRows *
refusals_first(void)
{
	return refusals;
}

/* Returns the first row that was refused. There must be one. */
int64
refusals_first_row(void)
{
	int64		first = refusals->rows[0];

	for (const RefusedRows *refusal = refusals->next; refusal; refusal = refusal->next)
		first = Min(first, refusal->rows[0]);
	return first;
}
