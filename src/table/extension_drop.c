/*
 * extension_drop.c
 *		Tells which statements drop the extension.
 *
 * Called by utility_hook.c, before a statement of the kinds that may do so: DROP
 * EXTENSION, DROP SCHEMA, DROP OWNED. The extension goes if it is named or its owner
 * loses all, or along with what it depends on: the schema of its functions, and plpgsql.
 * Without CASCADE such a statement fails, but only when it has locked all that would go.
 * One that the user may not execute drops nothing; nothing is locked here for longer than
 * a look at a catalog.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_shdepend.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"

#include "src/compat.h"
#include "src/table/extension_drop.h"

static List *find_roots(Oid extension);
static ObjectAddress *make_address(Oid catalog, Oid object);
static bool is_named(const DropStmt *drop, const ObjectAddress *root);
static bool is_owned_by(List *roles, const ObjectAddress *root);
static Oid	owner_of(const ObjectAddress *object);
static bool may_drop(const ObjectAddress *object);

/*
 * Check whether DROP or DROP OWNED locks what drops the extension, if the user may do that.
 * A schema or an extension is not looked up as a call would: its owner may drop it without
 * the privilege to use it.
 */
bool
extension_drop_follows(Node *statement)
{
	DropStmt   *drop = IsA(statement, DropStmt) ? (DropStmt *) statement : NULL;
	DropOwnedStmt *owned = drop ? NULL : castNode(DropOwnedStmt, statement);
	Oid			extension;
	ListCell   *cell;

	if (drop && drop->removeType != OBJECT_EXTENSION && drop->removeType != OBJECT_SCHEMA)
		return false;
	extension = get_extension_oid("outbox", true);
	if (!OidIsValid(extension))
		return false;
	foreach(cell, find_roots(extension))
	{
		const ObjectAddress *root = lfirst(cell);

		if ((drop ? is_named(drop, root) : is_owned_by(owned->roles, root)) && may_drop(root))
			return true;
	}
	return false;
}

/* Returns the objects with which the extension goes: itself, and those that it depends on. */
static List *
find_roots(Oid extension)
{
	List	   *roots = list_make1(make_address(ExtensionRelationId, extension));
	Relation	catalog;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	row;

	ScanKeyInit(&keys[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(ExtensionRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(extension));
	catalog = table_open(DependRelationId, AccessShareLock);
	scan = systable_beginscan(catalog, DependDependerIndexId, true, NULL, lengthof(keys), keys);
	while (HeapTupleIsValid(row = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(row);

		roots = lappend(roots, make_address(form->refclassid, form->refobjid));
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return roots;
}

/* Returns the address of an object, palloc'd. */
static ObjectAddress *
make_address(Oid catalog, Oid object)
{
	ObjectAddress *address = palloc0(sizeof(ObjectAddress));

	ObjectAddressSet(*address, catalog, object);
	return address;
}

/* Check whether a statement names an object. */
static bool
is_named(const DropStmt *drop, const ObjectAddress *root)
{
	Oid			catalog = drop->removeType == OBJECT_EXTENSION ? ExtensionRelationId : NamespaceRelationId;
	ListCell   *cell;

	foreach(cell, drop->objects)
	{
		const char *name = strVal(lfirst(cell));
		Oid			named = catalog == ExtensionRelationId ? get_extension_oid(name, true) : get_namespace_oid(name, true);

		if (root->classId == catalog && root->objectId == named)
			return true;
	}
	return false;
}

/* Check whether one of these roles owns an object. */
static bool
is_owned_by(List *roles, const ObjectAddress *root)
{
	Oid			owner = owner_of(root);
	ListCell   *cell;

	foreach(cell, roles)
	{
		if (OidIsValid(owner) && get_rolespec_oid(lfirst(cell), true) == owner)
			return true;
	}
	return false;
}

/* Returns the owner of an object of this database; InvalidOid if that is the role that initdb has made. */
static Oid
owner_of(const ObjectAddress *object)
{
	Oid			owner = InvalidOid;
	Relation	catalog = table_open(SharedDependRelationId, AccessShareLock);
	ScanKeyData keys[3];
	SysScanDesc scan;
	HeapTuple	row;

	ScanKeyInit(&keys[0], Anum_pg_shdepend_dbid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(MyDatabaseId));
	ScanKeyInit(&keys[1], Anum_pg_shdepend_classid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(object->classId));
	ScanKeyInit(&keys[2], Anum_pg_shdepend_objid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(object->objectId));
	scan = systable_beginscan(catalog, SharedDependDependerIndexId, true, NULL, lengthof(keys), keys);
	while (HeapTupleIsValid(row = systable_getnext(scan)))
	{
		Form_pg_shdepend form = (Form_pg_shdepend) GETSTRUCT(row);

		if (form->deptype == SHARED_DEPENDENCY_OWNER && form->refclassid == AuthIdRelationId)
			owner = form->refobjid;
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return owner;
}

/* Check whether the user may drop an object. */
static bool
may_drop(const ObjectAddress *object)
{
	return object->classId == ExtensionRelationId ? compat_owns_extension(object->objectId) :
		object->classId == NamespaceRelationId && compat_owns_schema(object->objectId);
}
