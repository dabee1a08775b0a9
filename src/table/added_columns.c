/*
 * added_columns.c
 *		Values of columns that an administrator has added to a table of ours.
 *
 * Called by deferred.c, whose rows are updated later by statements: one of these would
 * fail if a column were NULL that must not be. Such a column gets its default, computed with
 * the privileges of the table's owner. All others are NULL: no code that is not needed is called.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "src/owner_privileges.h"
#include "src/table/added_columns.h"

static ExprState *prepare_default(Relation table, AttrNumber column, EState *estate);
static bool may_refuse_null(Relation table, AttrNumber column);

/*
 * Finds the defaults of all columns of a table behind the first `nours`. They live as
 * long as the executor state.
 */
void
added_columns_prepare(AddedColumns *added, Relation table, int nours, EState *estate)
{
	int			natts = RelationGetNumberOfAttributes(table);
	MemoryContext caller;
	OwnerPrivileges before;

	*added = (AddedColumns) {.nours = nours, .owner = table->rd_rel->relowner, .estate = estate};
	if (natts == nours)
		return;
	caller = MemoryContextSwitchTo(estate->es_query_cxt);
	added->defaults = palloc0(natts * sizeof(ExprState *));
	owner_privileges_take(&before, added->owner);
	for (AttrNumber column = nours + 1; column <= natts; column++)
		added->defaults[column - 1] = prepare_default(table, column, estate);
	owner_privileges_return(&before);
	MemoryContextSwitchTo(caller);
}

/* Sets all columns of a row that are not ours. What it allocates lives until the per-tuple context is reset. */
void
added_columns_fill(const AddedColumns *added, TupleTableSlot *row)
{
	ExprContext *context = GetPerTupleExprContext(added->estate);

	for (int i = added->nours; i < row->tts_tupleDescriptor->natts; i++)
	{
		OwnerPrivileges before;

		row->tts_isnull[i] = true;
		if (added->defaults[i] == NULL)
			continue;
		owner_privileges_take(&before, added->owner);
		row->tts_values[i] = ExecEvalExprSwitchContext(added->defaults[i], context, &row->tts_isnull[i]);
		owner_privileges_return(&before);
	}
}

/* Prepares the default of a column that must not be NULL. Returns NULL if it may be, or has none. */
static ExprState *
prepare_default(Relation table, AttrNumber column, EState *estate)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(table), column - 1);
	Node	   *expression;

	if (attribute->attisdropped || attribute->attgenerated != '\0' || !may_refuse_null(table, column))
		return NULL;
	expression = build_column_default(table, column);
	return expression ? ExecPrepareExpr((Expr *) expression, estate) : NULL;
}

/* Check whether NULL in a column may be refused: by NOT NULL, or by a CHECK that names it or the whole row. */
static bool
may_refuse_null(Relation table, AttrNumber column)
{
	const TupleConstr *constraints = RelationGetDescr(table)->constr;
	Bitmapset  *named = NULL;

	for (int i = 0; constraints && i < constraints->num_check; i++)
		pull_varattnos(stringToNode(constraints->check[i].ccbin), 1, &named);
	return TupleDescAttr(RelationGetDescr(table), column - 1)->attnotnull ||
		bms_is_member(column - FirstLowInvalidHeapAttributeNumber, named) ||
		bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber, named);
}
