/*
 * store_server.c
 *		What this database does as the deduplication store of others.
 *
 * Called by SQL from store_postgres.c of another server, or of another database
 * of this one. The ids that others propagate are records here, without a name:
 * they are found and expire like all records of this database. A standby may
 * lack what was added last, so it answers nothing.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/uuid.h"

#include "src/api/caller_check.h"
#include "src/claim/claim.h"
#include "src/claim/durable_commit.h"
#include "src/claim/record_forget.h"
#include "src/compat.h"
#include "src/record/endpoint.h"

static RecordName name_of_key(const pg_uuid_t *key);
static int	compare_uuids(const void *a, const void *b);

PG_FUNCTION_INFO_V1(outbox_store_contains);
PG_FUNCTION_INFO_V1(outbox_store_add);
PG_FUNCTION_INFO_V1(outbox_store_remove);
PG_FUNCTION_INFO_V1(outbox_store_retention);

/* outbox.store_contains(key): check whether the id has been added and committed. */
Datum
outbox_store_contains(PG_FUNCTION_ARGS)
{
	RecordName	name;
	RecordLook	look;

	/* STRICT is up to the owner of the function. */
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	name = name_of_key(PG_GETARG_UUID_P(0));
	caller_check_can_write("outbox.store_contains()");
	look = claim_look_up(&name, NULL);
	durable_commit_wait(&look);
	PG_RETURN_BOOL(look.fate == RECORD_COMMITTED);
}

/*
 * outbox.store_add(keys): remembers ids; those that are known already stay as
 * they are. On disk when the transaction has committed, whatever the caller's
 * settings say.
 */
Datum
outbox_store_add(PG_FUNCTION_ARGS)
{
	ArrayType  *array;
	Datum	   *keys;
	bool	   *isnull;
	int			n;

	/* STRICT is up to the owner of the function. */
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	array = PG_GETARG_ARRAYTYPE_P(0);
	caller_check_can_write("outbox.store_add()");
	deconstruct_array(array, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR, &keys, &isnull, &n);

	/*
	 * In a fixed order, so that two sessions that add the same ids do not
	 * deadlock.
	 */
	for (int i = 0; i < n; i++)
	{
		if (isnull[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("key must not be null")));
	}
	qsort(keys, n, sizeof(Datum), compare_uuids);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		claim_append(DatumGetUUIDP(keys[i]), NULL, NULL);
	}
	ForceSyncCommit();
	PG_RETURN_INT32(n);
}

/* outbox.store_remove(key): forgets an id. Returns false if it was not known. */
Datum
outbox_store_remove(PG_FUNCTION_ARGS)
{
	RecordName	name;
	RecordLook	found;
	bool		removed;

	/* STRICT is up to the owner of the function. */
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	name = name_of_key(PG_GETARG_UUID_P(0));
	caller_check_can_write("outbox.store_remove()");
	ForceSyncCommit();
	removed = record_forget_in_ring(&name, &found);

	/*
	 * A call that counts as failed may have removed it, in a commit that the
	 * standby lacks.
	 */
	if (!removed && durable_commit_has_standby())
		(void) durable_commit_wait_for_standby(GetFlushRecPtr(NULL), NULL);
	PG_RETURN_BOOL(removed);
}

/* outbox.store_retention(): returns how long an id is remembered at least, in microseconds. */
Datum
outbox_store_retention(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("outbox.store_retention()");
	PG_RETURN_INT64(endpoint_longest_retention());
}

/* Names the record of an id that others have added: nothing but its key is known. */
static RecordName
name_of_key(const pg_uuid_t *key)
{
	return (RecordName) {
		.key = *key,
		.retention = endpoint_longest_retention()
	};
}

/* For qsort(). */
static int
compare_uuids(const void *a, const void *b)
{
	return memcmp(DatumGetUUIDP(*(const Datum *) a), DatumGetUUIDP(*(const Datum *) b), UUID_LEN);
}
