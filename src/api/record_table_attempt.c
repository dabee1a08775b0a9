/*
 * record_table_attempt.c
 *		Uses a custom record table for a view; failure is no error.
 *
 * Called by endpoint_view.c and record_view.c. A table that cannot be used any more is
 * skipped with a warning, because these views are where users look for the reason.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "src/api/record_table_attempt.h"

/*
 * Does something with a custom record table. Turns an error, except a cancel request, into a
 * warning. Our subtransaction ends in any case: who catches the request ends one of its own.
 */
void
record_table_attempt(RecordTableUse use, const Endpoint *endpoint, void *arg)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	PG_TRY();
	{
		use(endpoint, arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		ereport(WARNING,
				(errmsg("could not read the records of endpoint \"%s\": %s", endpoint->name, error->message),
				 error->detail ? errdetail("%s", error->detail) : 0,
				 error->hint ? errhint("%s", error->hint) : 0));
		FreeErrorData(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
}
