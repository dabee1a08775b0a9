/*
 * column_expression.c
 *		SQL expressions on the columns of a row, and their values.
 *
 * Called by forward.c and forward_plan.c: the arguments of outbox_forward() are
 * such expressions; capture_triggers.c has only the syntax of a condition checked.
 * They are what a CHECK constraint may have: no subquery, no aggregate. Names in
 * them are looked up in pg_catalog alone, strings read as standard SQL has them,
 * constant times as UTC, and other constants as with the defaults of PostgreSQL, whatever
 * search_path and other settings the session has that inserts the row.
 * Functions are called with the privileges of that session's user, as any trigger would.
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
#include "parser/parse_type.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "src/compat.h"
#include "src/settings.h"
#include "src/trigger/column_expression.h"
#include "src/trigger/key_settings.h"

static int	parser_settings_take(void);
static Node *transform(Relation table, Node *expression, Oid type);
static bool find_types(Node *node, void *found);
static void name_expression(void *arg);

/* Parses what must be one expression, and raises 42601 if it is anything else. */
Node *
column_expression_parse(const char *sql)
{
	List	   *statements = raw_parser(psprintf("SELECT (%s)", sql), RAW_PARSE_DEFAULT);
	SelectStmt *select = list_length(statements) == 1 ?
		(SelectStmt *) linitial_node(RawStmt, statements)->stmt : NULL;

	if (select == NULL || !IsA(select, SelectStmt) || list_length(select->targetList) != 1 ||
		select->op != SETOP_NONE || select->fromClause || select->whereClause || select->sortClause ||
		select->limitCount || select->limitOffset || select->groupClause || select->havingClause ||
		select->windowClause || select->intoClause || select->lockingClause)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("\"%s\" is not an expression", sql)));
	return linitial_node(ResTarget, select->targetList)->val;
}

/*
 * Makes a value of an expression, to be coerced to a type unless that is
 * InvalidOid. Raises the parser's errors, and 42804 if it cannot be coerced. No function
 * in it is called before column_expression_plan(), which must come before it is evaluated.
 */
ColumnExpression *
column_expression_make(Relation table, const char *sql, Oid type)
{
	ColumnExpression *value = palloc0(sizeof(ColumnExpression));
	ErrorContextCallback context = {error_context_stack, name_expression, (void *) sql};
	int			nest_level = parser_settings_take();
	Node	   *expression;
	bool		is_varlena;
	Oid			output;

	error_context_stack = &context;
	expression = transform(table, column_expression_parse(sql), type);
	error_context_stack = context.previous;
	(void) find_types(expression, &value->depends);
	AtEOXact_GUC(false, nest_level);

	value->expression = (Expr *) expression;
	if (IsA(expression, Var) && ((Var *) expression)->varattno > 0)
		value->column = ((Var *) expression)->varattno;
	value->type = getBaseType(exprType(expression));
	getTypeOutputInfo(value->type, &output, &is_varlena);
	fmgr_info(output, &value->output);
	return value;
}

/* Prepares a value to be evaluated. Calls immutable functions of constants, with the privileges of the current user. */
void
column_expression_plan(ColumnExpression *value)
{
	int			nest_level = parser_settings_take();

	value->expression = expression_planner(value->expression);
	(void) find_types((Node *) value->expression, &value->depends); /* also of functions in
																	 * SQL that were inlined */
	AtEOXact_GUC(false, nest_level);
}

/* Returns the value for a row. */
Datum
column_expression_evaluate(const ColumnExpression *value, TupleTableSlot *row, bool *isnull)
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
column_expression_is_generated(const ColumnExpression *value, Relation table)
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
column_expression_text(ColumnExpression *value, TupleTableSlot *row)
{
	bool		isnull;
	Datum		result = column_expression_evaluate(value, row, &isnull);

	return isnull ? NULL : column_expression_print(value, result);
}

/* Prints a value that was evaluated and is not NULL. To evaluate it again could give another one. */
text *
column_expression_print(ColumnExpression *value, Datum result)
{
	if (value->type == TEXTOID || value->type == VARCHAROID)
		return DatumGetTextPP(result);
	return cstring_to_text(OutputFunctionCall(&value->output, result));
}

/* Sets what the meaning of an expression depends on; returns what AtEOXact_GUC() needs to restore it. */
static int
parser_settings_take(void)
{
	int			nest_level = key_settings_take();

	settings_override("search_path", "pg_catalog, pg_temp");
	settings_override("standard_conforming_strings", "on");
	settings_override("transform_null_equals", "off");

	/* The input functions of types depend on these; constants are read here. */
	settings_override("array_nulls", "on");
	settings_override("lc_monetary", "C");
	settings_override("timezone_abbreviations", "Default");
	settings_override("xmloption", "content");
	return nest_level;
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

	/* Blanks at the end of char(n) mean nothing, and would be part of a name. */
	if (!OidIsValid(type) &&
		(exprType(result) == UNKNOWNOID || getBaseType(exprType(result)) == BPCHAROID))
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

/*
 * A tree walker: adds to a list the relations that tell of changes of types which
 * an expression uses. (A column's own type cannot be dropped without a change of
 * the table.) An attribute of a composite type is found by its number.
 */
static bool
find_types(Node *node, void *found)
{
	List	  **relations = found;

	if (node == NULL)
		return false;
	if (!IsA(node, List))
	{
		Oid			type = exprType(node);

		/* Since 17 the ERROR of ON ERROR has no type. */
		Oid			composite = OidIsValid(type) ? typeOrDomainTypeRelid(type) : InvalidOid;

		if (OidIsValid(composite))
			*relations = list_append_unique_oid(*relations, composite);
		if (!IsA(node, Var) && type >= FirstNormalObjectId)
			*relations = list_append_unique_oid(*relations, TypeRelationId);
	}
	return expression_tree_walker(node, find_types, found);
}

/*
 * An error context callback: the position of an error is not one in the statement of
 * the caller. A name that means nothing may be meant as a constant.
 */
static void
name_expression(void *arg)
{
	int			code = geterrcode();

	if (geterrposition() > 0)
		errposition(0);
	if (code == ERRCODE_UNDEFINED_COLUMN || code == ERRCODE_UNDEFINED_TABLE || code == ERRCODE_SYNTAX_ERROR)
		errdetail("Arguments are SQL expressions on the columns of the row; a constant needs quotes of its own, as in 'dest=''orders'''.");
	errcontext("expression \"%s\"", (const char *) arg);
}
