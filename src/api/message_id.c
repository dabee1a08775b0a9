/*
 * message_id.c
 *		The id of an outgoing message that consumers see.
 *
 * Called by enqueue.c and send.c, which take what the caller passes, and by enqueue_many.c,
 * forward.c and capture_change.c. (The number that a message has in the log is another
 * id: log_id.c.)
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "src/api/arguments.h"
#include "src/api/message_id.h"
#include "src/unique_id.h"

static text *read_id(FunctionCallInfo fcinfo);

/* Gives a message the id that the caller passes, or makes one if that is NULL. */
void
message_id_take(FunctionCallInfo fcinfo, Message *message)
{
	if (PG_ARGISNULL(ARG_MESSAGE_ID))
		message_id_make(message);
	else
		message->message_id = read_id(fcinfo);
}

/* Makes an id for a message that was given none. */
void
message_id_make(Message *message)
{
	unique_id_random(&message->uuid);
	message->has_uuid = true;
	message->message_id = unique_id_to_text(&message->uuid);
}

/*
 * Reads an id that is not NULL. The argument is polymorphic: a second function
 * for uuid would make every call without an id ambiguous.
 */
static text *
read_id(FunctionCallInfo fcinfo)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, ARG_MESSAGE_ID);

	if (type != TEXTOID && type != UUIDOID)
		type = getBaseType(type);
	switch (type)
	{
		case TEXTOID:
		case VARCHAROID:
			return argument_name(fcinfo, ARG_MESSAGE_ID, "message_id");
		case UUIDOID:
			return unique_id_to_text(PG_GETARG_UUID_P(ARG_MESSAGE_ID));
		default:
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("message_id must be of type text or uuid, not %s", format_type_be(type))));
	}
	return NULL;				/* not reached */
}
