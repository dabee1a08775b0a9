/*
 * open_message.c
 *		Which incoming message is open in this transaction, and its claim.
 *
 * Called by begin_commit.c, enqueue.c and send.c. The state lives as long as
 * the transaction and follows its savepoints: the first change in a
 * subtransaction puts a copy on a stack; when the subtransaction is rolled back
 * the copy goes, when it is released the copy replaces the one below.
 *
 * optimistic: begin looks, commit claims. pessimistic: begin claims, and waits
 * for a transaction that is processing the message.
 *
 * A record that is still open at COMMIT or PREPARE is an error. Nothing may be
 * written then on the caller's behalf: deferred constraints have been checked
 * already. And nothing may have been committed elsewhere: postgres_fdw does
 * that at the same moment, so that our check has to come first. PostgreSQL
 * calls first what was registered last; so it is registered again when a
 * message is opened, and by the hook on COMMIT.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/claim/claim.h"
#include "src/claim/duplicate_count.h"
#include "src/claim/durable_commit.h"
#include "src/claim/open_message.h"
#include "src/kill_point.h"
#include "src/log/log.h"

typedef enum Phase
{
	PHASE_IDLE,
	PHASE_OPEN,
	PHASE_DUPLICATE				/* begin returned false */
} Phase;

typedef struct OpenMessage
{
	struct OpenMessage *below;
	SubTransactionId subtransaction;	/* that this state belongs to */
	Phase		phase;
	RecordName	name;
	bool		owns_name;		/* or it is that of a state below */
	RecordMemo	memo;
	bool		claimed;
	int			messages;
} OpenMessage;

/* In TopTransactionContext; NULL = the outbox was not used in this transaction. */
static OpenMessage *state;

static OpenMessage *writable_state(void);
static void start_message(OpenMessage *message, const Endpoint *endpoint, const char *msgid);
static void free_name(OpenMessage *message);
static void append_receipt(const RecordName *name);
static void refuse_claimed(const RecordName *name, const RecordLook *winner);
static void end_with_transaction(XactEvent event, void *arg);
static void follow_savepoint(SubXactEvent event, SubTransactionId mine,
							 SubTransactionId parent, void *arg);
static void refuse_at_commit(XactEvent event, void *arg);
static void refuse_open_message(void);

/* Registers the callbacks; called once, by _PG_init. */
void
open_message_init(void)
{
	RegisterXactCallback(end_with_transaction, NULL);
	RegisterSubXactCallback(follow_savepoint, NULL);
}

/*
 * Opens a message. Returns true if it is new, false if it has been processed.
 *
 * Before it returns false it waits until the record that says so is safe, which
 * normally takes no time: see durable_commit.c.
 *
 * Raises 55000 if another message is open. For an endpoint with pessimistic
 * concurrency it waits for a transaction that is processing the message.
 */
bool
open_message_begin(const Endpoint *endpoint, const char *msgid)
{
	OpenMessage *message = writable_state();
	RecordLook	look;

	if (message->phase == PHASE_OPEN)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("message \"%s\" is already open", message->name.msgid),
				 errhint("Call outbox_commit() before the next outbox_begin().")));

	start_message(message, endpoint, msgid);
	if (endpoint->concurrency == CONCURRENCY_PESSIMISTIC)
	{
		look = claim_message(&message->name, NULL);
		message->claimed = true;
	}
	else
		look = claim_look_up(&message->name, &message->memo);

	if (look.fate == RECORD_COMMITTED)
	{
		durable_commit_wait(&look);
		message->phase = PHASE_DUPLICATE;
		duplicate_count_add(message->name.endpoint);
		return false;
	}
	message->phase = PHASE_OPEN;
	open_message_check_first();
	return true;
}

/*
 * Ensures that an open message is refused at COMMIT before another extension
 * commits elsewhere. Called when a message has been opened, and before COMMIT
 * and PREPARE TRANSACTION.
 */
void
open_message_check_first(void)
{
	if (state == NULL || state->phase != PHASE_OPEN)
		return;
	UnregisterXactCallback(refuse_at_commit, NULL);
	RegisterXactCallback(refuse_at_commit, NULL);
}

/*
 * Counts an outgoing message. Returns the record that it belongs to, or NULL
 * outside of begin and commit. Raises 55000 after a duplicate.
 */
const RecordName *
open_message_add_outgoing(void)
{
	OpenMessage *message;

	if (state == NULL || state->phase == PHASE_IDLE)
		return NULL;
	if (state->phase == PHASE_DUPLICATE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("message \"%s\" has already been processed", state->name.msgid),
				 errhint("When outbox_begin() returns false, do nothing but acknowledge the message.")));

	message = writable_state();
	message->messages++;
	return &message->name;
}

/* Returns the record of the open message; NULL if there is none. */
const RecordName *
open_message_record(void)
{
	return state && state->phase == PHASE_OPEN ? &state->name : NULL;
}

/*
 * Ends the open message and returns how many messages its record carries; 0 after
 * a duplicate. Raises 55000 if there is no open message, and 23505 (or 40001
 * where the isolation level forbids to see the winner) if another transaction
 * has claimed it meanwhile.
 */
int
open_message_commit(void)
{
	OpenMessage *message = writable_state();

	if (message->phase == PHASE_IDLE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no message is open"),
				 errhint("Call outbox_begin() first.")));

	if (message->phase == PHASE_OPEN && !message->claimed)
	{
		RecordLook	look = claim_message(&message->name, &message->memo);

		if (look.fate == RECORD_COMMITTED)
			refuse_claimed(&message->name, &look);
		message->claimed = true;
	}
	else if (message->phase == PHASE_OPEN)
		endpoint_check_place(message->name.endpoint, &message->name.mapping, message->name.dedup_store);
	if (message->phase == PHASE_OPEN && message->name.has_receipt)
		append_receipt(&message->name);
	message->phase = PHASE_IDLE;
	return message->messages;
}

/* Returns the state of this subtransaction, ready to be changed. */
static OpenMessage *
writable_state(void)
{
	SubTransactionId mine = GetCurrentSubTransactionId();
	OpenMessage *copy;

	if (state && state->subtransaction == mine)
		return state;

	copy = MemoryContextAllocZero(TopTransactionContext, sizeof(OpenMessage));
	if (state)
		*copy = *state;
	copy->below = state;
	copy->subtransaction = mine;
	copy->owns_name = false;
	state = copy;
	return state;
}

/*
 * Names the record in memory that lives as long as the transaction. One transaction
 * may process millions of messages, so the name of the one before is freed, unless a
 * savepoint can bring it back.
 */
static void
start_message(OpenMessage *message, const Endpoint *endpoint, const char *msgid)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	RecordName	name;

	record_name_make(&name, endpoint, msgid);
	MemoryContextSwitchTo(caller);
	free_name(message);
	message->name = name;
	message->owns_name = true;
	message->claimed = false;
	message->messages = 0;
}

/* Frees the name of a state, if it has one of its own. */
static void
free_name(OpenMessage *message)
{
	if (message->owns_name)
		record_name_free(&message->name);
	message->owns_name = false;
}

/* Leaves a receipt in the log for those that are told of the record. */
static void
append_receipt(const RecordName *name)
{
	log_append_receipt(&(Receipt) {
		.at = GetCurrentTimestamp(), .key = name->key,
			.endpoint = cstring_to_text(name->endpoint), .msgid = cstring_to_text(name->msgid)
	});
}

/* Raises 40001 if the isolation level forbids to see the winner, otherwise 23505. */
static void
refuse_claimed(const RecordName *name, const RecordLook *winner)
{
	duplicate_count_add(name->endpoint);
	if (IsolationUsesXactSnapshot() &&
		(!TransactionIdIsValid(winner->xmin) || XidInMVCCSnapshot(winner->xmin, GetTransactionSnapshot())))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to a concurrent claim"),
				 errdetail("Message \"%s\" of endpoint \"%s\" was processed by a concurrent transaction.",
						   name->msgid, name->endpoint),
				 errhint("Roll back; when the message is delivered again, outbox_begin() returns false.")));
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("message has already been processed"),
			 errdetail("Message \"%s\" of endpoint \"%s\" was processed by another transaction.",
					   name->msgid, name->endpoint),
			 errhint("Roll back; when the message is delivered again, outbox_begin() returns false."),
			 err_generic_string(PG_DIAG_CONSTRAINT_NAME, "outbox_record_claimed")));
}

/* An XactCallback. */
static void
end_with_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			if (state && event == XACT_EVENT_PRE_COMMIT)
				KILL_POINT("before_commit_record");
			if (state && event == XACT_EVENT_PRE_PREPARE)
				KILL_POINT("before_prepare_record");
			break;

		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			if (state && event == XACT_EVENT_PREPARE)
				KILL_POINT("prepared");
			state = NULL;		/* its memory went with the transaction */
			break;

		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			break;
	}
}

/* A SubXactCallback. */
static void
follow_savepoint(SubXactEvent event, SubTransactionId mine,
				 SubTransactionId parent, void *arg)
{
	OpenMessage *below;

	if (state == NULL || state->subtransaction != mine)
		return;

	below = state->below;
	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		free_name(state);
		pfree(state);
		state = below;
	}
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		if (below && below->subtransaction == parent)
		{
			if (state->owns_name)
				free_name(below);
			state->owns_name |= below->owns_name;
			state->below = below->below;
			pfree(below);
		}
		state->subtransaction = parent;
	}
}

/* An XactCallback that is called first; see open_message_check_first(). */
static void
refuse_at_commit(XactEvent event, void *arg)
{
	if ((event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE) &&
		state && state->phase == PHASE_OPEN)
		refuse_open_message();
}

/* Raises 25000 for the message that is open. */
static void
refuse_open_message(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
			 errmsg("message \"%s\" of endpoint \"%s\" is still open",
					state->name.msgid, state->name.endpoint),
			 errhint("Call outbox_commit() in the same transaction, before COMMIT, or roll back.  In autocommit mode each statement is a transaction of its own; turn it off, or use BEGIN.")));
}
