/*
 * extension_drop.c
 *		Tells which statements drop the extension.
 *
 * Called by utility_hook.c, before a statement of the kinds that may do so: DROP
 * EXTENSION, DROP SCHEMA, DROP OWNED. A statement that the user may not execute
 * drops nothing; nothing is locked here.
 */
#include "postgres.h"

#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "nodes/parsenodes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "src/compat.h"
#include "src/table/extension_drop.h"
#include "src/table/relations.h"

static bool names_us(List *extensions);
static bool drops_our_schema(List *schemas);
static bool drops_all_of_our_owner(List *roles);

/*
 * Check whether a statement drops this extension: by its name, with the schema of
 * its functions, or with all that its owner has; and whether the user may do that.
 */
bool
extension_drop_follows(Node *statement)
{
	DropStmt   *drop = (DropStmt *) statement;

	if (IsA(statement, DropOwnedStmt))
		return drops_all_of_our_owner(((DropOwnedStmt *) statement)->roles);
	if (drop->removeType == OBJECT_EXTENSION)
		return names_us(drop->objects);
	return drop->removeType == OBJECT_SCHEMA && drop->behavior == DROP_CASCADE && drops_our_schema(drop->objects);
}

/* Check whether a list of extensions has this one. */
static bool
names_us(List *extensions)
{
	Oid			extension = get_extension_oid("outbox", true);
	ListCell   *cell;

	foreach(cell, extensions)
	{
		if (strcmp(strVal(lfirst(cell)), "outbox") == 0)
			return OidIsValid(extension) && compat_owns_extension(extension);
	}
	return false;
}

/*
 * Check whether a list of schemas has that of our functions. They are not looked up as
 * a call would: the owner of a schema may drop it without the right to use it.
 */
static bool
drops_our_schema(List *schemas)
{
	static const Oid arguments[] = {TEXTOID, TEXTOID, TEXTOID};
	Oid			extension = get_extension_oid("outbox", true);
	oidvector  *types = buildoidvector(arguments, lengthof(arguments));
	ListCell   *cell;

	foreach(cell, schemas)
	{
		Oid			schema = get_namespace_oid(strVal(lfirst(cell)), true);
		Oid			function;

		if (!OidIsValid(extension) || !OidIsValid(schema) || !compat_owns_schema(schema))
			continue;
		function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("outbox_begin"),
								   PointerGetDatum(types), ObjectIdGetDatum(schema));
		if (OidIsValid(function) && getExtensionOfObject(ProcedureRelationId, function) == extension)
			return true;
	}
	return false;
}

/* Check whether a list of roles has the owner of our tables. */
static bool
drops_all_of_our_owner(List *roles)
{
	Oid			extension = get_extension_oid("outbox", true);
	Oid			owner = OidIsValid(extension) ? relations_owner() : InvalidOid;
	ListCell   *cell;

	foreach(cell, roles)
	{
		if (OidIsValid(owner) && get_rolespec_oid(lfirst(cell), true) == owner)
			return compat_owns_extension(extension);
	}
	return false;
}
