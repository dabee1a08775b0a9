/*
 * row_value.c
 *		The value of an SQL expression on the columns of a row.
 *
 * Called by forward.c and forward_plan.c: the arguments of outbox_forward() are
 * such expressions. They are what a CHECK constraint may have: no subquery, no
 * aggregate. Names in them are looked up in pg_catalog alone, whatever
 * search_path the session has that inserts the row. Functions are called with
 * the rights of that session's user, as any trigger would.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/transam.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "src/compat.h"
#include "src/trigger/row_value.h"

static Node *parse_expression(const char *sql);
static Node *transform(Relation table, Node *expression, Oid type);
static bool find_type(Node *node, void *context);
static void name_position(void *arg);

/*
 * Makes a value of an expression, to be coerced to a type unless that is
 * InvalidOid. Raises the parser's errors, and 42804 if it cannot be coerced.
 */
RowValue *
row_value_make(Relation table, const char *sql, Oid type)
{
	RowValue   *value = palloc0(sizeof(RowValue));
	ErrorContextCallback context = {error_context_stack, name_position, (void *) sql};
	int			nest_level = NewGUCNestLevel();
	Node	   *expression;
	bool		is_varlena;
	Oid			output;

	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	error_context_stack = &context;
	expression = transform(table, parse_expression(sql), type);
	error_context_stack = context.previous;
	value->has_types = find_type(expression, NULL);
	value->expression = expression_planner((Expr *) expression);
	AtEOXact_GUC(false, nest_level);

	if (IsA(expression, Var) && ((Var *) expression)->varattno > 0)
		value->column = ((Var *) expression)->varattno;
	value->type = getBaseType(exprType(expression));
	getTypeOutputInfo(value->type, &output, &is_varlena);
	fmgr_info(output, &value->output);
	return value;
}

/* Returns the value for a row. */
Datum
row_value_get(const RowValue *value, TupleTableSlot *row, bool *isnull)
{
	ExprContext *context;
	Datum		result;

	if (value->column > 0)
		return slot_getattr(row, value->column, isnull);
	context = CreateStandaloneExprContext();
	context->ecxt_scantuple = row;
	result = ExecEvalExpr(ExecInitExpr(value->expression, NULL), context, isnull);
	FreeExprContext(context, true);
	return result;
}

/* Check whether a value has stored generated columns, which a row has not before it is stored. */
bool
row_value_is_generated(const RowValue *value, Relation table)
{
	TupleConstr *constraints = RelationGetDescr(table)->constr;
	Bitmapset  *columns = NULL;
	int			member = -1;

	if (constraints == NULL || !constraints->has_generated_stored)
		return false;
	pull_varattnos((Node *) value->expression, 1, &columns);
	while ((member = bms_next_member(columns, member)) >= 0)
	{
		AttrNumber	number = member + FirstLowInvalidHeapAttributeNumber;

		if (number == 0 ||		/* the whole row */
			(number > 0 && TupleDescAttr(RelationGetDescr(table), number - 1)->attgenerated == ATTRIBUTE_GENERATED_STORED))
			return true;
	}
	return false;
}

/* Returns the value as it is printed, or NULL. */
text *
row_value_text(RowValue *value, TupleTableSlot *row)
{
	bool		isnull;
	Datum		result = row_value_get(value, row, &isnull);

	if (isnull)
		return NULL;
	if (value->type == TEXTOID || value->type == VARCHAROID)
		return DatumGetTextPP(result);
	return cstring_to_text(OutputFunctionCall(&value->output, result));
}

/* Parses what must be one expression. */
static Node *
parse_expression(const char *sql)
{
	List	   *statements = raw_parser(psprintf("SELECT (%s)", sql), RAW_PARSE_DEFAULT);
	SelectStmt *select = list_length(statements) == 1 ?
		(SelectStmt *) linitial_node(RawStmt, statements)->stmt : NULL;

	if (select == NULL || !IsA(select, SelectStmt) || list_length(select->targetList) != 1 ||
		select->op != SETOP_NONE || select->fromClause || select->whereClause || select->sortClause ||
		select->limitCount || select->limitOffset || select->groupClause || select->lockingClause)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("\"%s\" is not an expression", sql)));
	return linitial_node(ResTarget, select->targetList)->val;
}

/* Finds out what the names in an expression mean. The row may be called "new", as in CREATE TRIGGER. */
static Node *
transform(Relation table, Node *expression, Oid type)
{
	ParseState *state = make_parsestate(NULL);
	ParseNamespaceItem *row = addRangeTableEntryForRelation(state, table, AccessShareLock, makeAlias("new", NIL), false, true);
	Node	   *result;

	addNSItemToQuery(state, row, true, true, true);
	result = transformExpr(state, expression, EXPR_KIND_TRIGGER_WHEN);
	if (!OidIsValid(type) && exprType(result) == UNKNOWNOID)
		type = TEXTOID;
	if (OidIsValid(type))
	{
		Node	   *coerced = coerce_to_target_type(state, result, exprType(result), type, -1,
													COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);

		if (coerced == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("an expression of type %s cannot be used here", format_type_be(exprType(result))),
					 errdetail("It must be of type %s.", format_type_be(type))));
		result = coerced;
	}
	assign_expr_collations(state, result);
	free_parsestate(state);
	return compat_expand_generated(result, table);
}

/* A tree walker: check whether a type is used that can be dropped or altered. */
static bool
find_type(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (!IsA(node, List) && !IsA(node, Var) && exprType(node) >= FirstNormalObjectId)
		return true;
	return expression_tree_walker(node, find_type, context);
}

/* An error context callback: the position of an error is not one in the statement of the caller. */
static void
name_position(void *arg)
{
	if (geterrposition() > 0)
		errposition(0);
	errcontext("expression \"%s\"", (const char *) arg);
}
