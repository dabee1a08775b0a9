/*
 * compat.h
 *		The only place that tests versions of PostgreSQL and hiredis.
 *
 * Code is written to the newest spelling that all supported versions can be
 * brought to; what is older is mapped here.
 */
#ifndef OUTBOX_COMPAT_H
#define OUTBOX_COMPAT_H

#include <hiredis.h>

#include "access/genam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "miscadmin.h"
#include "replication/walsender_private.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "outbox supports PostgreSQL 15 to 18"
#endif

/* 18 reports index scans to EXPLAIN; ours are never explained. */
#if PG_VERSION_NUM >= 180000
#define compat_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#else
#define compat_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, nkeys, 0)
#endif

/* 16 can leave out indexes that do not summarize. */
#if PG_VERSION_NUM >= 160000
#define compat_insert_index_tuples(indexes, row, estate) \
	ExecInsertIndexTuples(indexes, row, estate, false, false, NULL, NIL, false)
#else
#define compat_insert_index_tuples(indexes, row, estate) \
	ExecInsertIndexTuples(indexes, row, estate, false, false, NULL, NIL)
#endif

/* 17 moved the number of a process out of PGPROC. */
#if PG_VERSION_NUM < 170000
#define MyProcNumber (MyProc->pgprocno)
#endif

/* 17 names wait events of extensions; before, all share one. */
#if PG_VERSION_NUM >= 170000
#define compat_wait_event(name) WaitEventExtensionNew(name)
#else
#define compat_wait_event(name) ((void) (name), PG_WAIT_EXTENSION)
#endif

/* 17 can limit the length of transactions. */
#if PG_VERSION_NUM >= 170000
#define COMPAT_TRANSACTION_TIMEOUT 1
#else
#define COMPAT_TRANSACTION_TIMEOUT 0
#endif

/* 16 and 17 renamed, or gave a parameter to, what TRUNCATE is made of. */
#if PG_VERSION_NUM >= 160000
#define compat_new_files(table) RelationSetNewRelfilenumber(table, (table)->rd_rel->relpersistence)
#else
#define compat_new_files(table) RelationSetNewRelfilenode(table, (table)->rd_rel->relpersistence)
#endif
#if PG_VERSION_NUM >= 170000
#define compat_reindex_relation(relation, flags, params) reindex_relation(NULL, relation, flags, params)
#else
#define compat_reindex_relation(relation, flags, params) reindex_relation(relation, flags, params)
#endif

/* 16 merged the tests for ownership. */
#if PG_VERSION_NUM >= 160000
#define compat_owns_extension(extension) object_ownercheck(ExtensionRelationId, extension, GetUserId())
#define compat_owns_table(table) object_ownercheck(RelationRelationId, table, GetUserId())
#define compat_owns_database(database) object_ownercheck(DatabaseRelationId, database, GetUserId())
#else
#define compat_owns_extension(extension) pg_extension_ownercheck(extension, GetUserId())
#define compat_owns_table(table) pg_class_ownercheck(table, GetUserId())
#define compat_owns_database(database) pg_database_ownercheck(database, GetUserId())
#endif

/* hiredis 1.0 made the number of an array's elements unsigned. */
#if HIREDIS_MAJOR >= 1
typedef size_t compat_elements;
#else
typedef int compat_elements;
#endif

/* 17 renamed what knows the oldest transaction that the commit log has. */
#if PG_VERSION_NUM >= 170000
#define compat_oldest_clog_xid() (TransamVariables->oldestClogXid)
#else
#define compat_oldest_clog_xid() (ShmemVariableCache->oldestClogXid)
#endif

/*
 * A minor release of all versions made flags of the one, which is shared by all processes.
 * Right after a start nobody has set them yet: then our own setting tells.
 */
#ifdef SYNC_STANDBY_DEFINED
#define compat_sync_standbys_status() (((volatile WalSndCtlData *) WalSndCtl)->sync_standbys_status)
#define compat_has_sync_standbys() \
	((compat_sync_standbys_status() & SYNC_STANDBY_INIT) != 0 ? \
	 (compat_sync_standbys_status() & SYNC_STANDBY_DEFINED) != 0 : \
	 SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0')
#else
#define compat_has_sync_standbys() (((volatile WalSndCtlData *) WalSndCtl)->sync_standbys_defined)
#endif

#endif							/* OUTBOX_COMPAT_H */
