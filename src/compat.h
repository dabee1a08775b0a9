/*
 * compat.h
 *		The only place that tests the versions of PostgreSQL, hiredis and OpenSSL.
 *
 * Code uses the newest interface that can be provided for all supported
 * versions; older ones are mapped here.
 */
#ifndef OUTBOX_COMPAT_H
#define OUTBOX_COMPAT_H

#include <hiredis.h>
#ifdef USE_OPENSSL
#include <openssl/evp.h>
#endif

#include "access/genam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "miscadmin.h"
#include "replication/walsender_private.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 180000
#include "rewrite/rewriteHandler.h"
#endif

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "outbox supports PostgreSQL 15 to 18"
#endif

/* 18 puts the word before the declaration of a function that does not return. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#endif

/* 18 counts index scans for EXPLAIN; ours are never explained. */
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

/* 17 renamed the number of a process in PGPROC. */
#if PG_VERSION_NUM < 170000
#define MyProcNumber (MyProc->pgprocno)
#endif

/* Since 17 extensions can name wait events; before, all share one. */
#if PG_VERSION_NUM >= 170000
#define compat_wait_event(name) WaitEventExtensionNew(name)
#else
#define compat_wait_event(name) ((void) (name), PG_WAIT_EXTENSION)
#endif

/* Since 17 the duration of transactions can be limited. */
#if PG_VERSION_NUM >= 170000
#define COMPAT_TRANSACTION_TIMEOUT 1
#else
#define COMPAT_TRANSACTION_TIMEOUT 0
#endif

/* 16 and 17 renamed, or added parameters to, functions that TRUNCATE uses. */
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

/* Since 16 what a hook of a setting makes is in memory of PostgreSQL's own. */
#if PG_VERSION_NUM >= 160000
#define compat_guc_malloc(size) guc_malloc(LOG, size)
#else
#define compat_guc_malloc(size) malloc(size)
#endif

/* 16 merged the functions that check ownership. */
#if PG_VERSION_NUM >= 160000
#define compat_owns_extension(extension) object_ownercheck(ExtensionRelationId, extension, GetUserId())
#define compat_owns_table(table) object_ownercheck(RelationRelationId, table, GetUserId())
#define compat_owns_database(database) object_ownercheck(DatabaseRelationId, database, GetUserId())
#define compat_owns_schema(schema) object_ownercheck(NamespaceRelationId, schema, GetUserId())
#else
#define compat_owns_extension(extension) pg_extension_ownercheck(extension, GetUserId())
#define compat_owns_table(table) pg_class_ownercheck(table, GetUserId())
#define compat_owns_database(database) pg_database_ownercheck(database, GetUserId())
#define compat_owns_schema(schema) pg_namespace_ownercheck(schema, GetUserId())
#endif

/* Since 18 generated columns can be virtual: NULL in a row, and computed when they are read. */
#if PG_VERSION_NUM >= 180000
#define compat_is_virtual(column) ((column)->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
#define compat_expand_generated(expression, table) expand_generated_columns_in_expr(expression, table, 1)
#else
#define compat_is_virtual(column) false
#define compat_expand_generated(expression, table) (expression)
#endif

/* Since 18 a column can be NOT NULL for new rows only. `i` begins with 0. */
#if PG_VERSION_NUM >= 180000
#define compat_is_not_null(columns, i) (TupleDescCompactAttr(columns, i)->attnullability == ATTNULLABLE_VALID)
#else
#define compat_is_not_null(columns, i) (TupleDescAttr(columns, i)->attnotnull)
#endif

/* hiredis 1.0 made the number of elements of an array unsigned. */
#if HIREDIS_MAJOR >= 1
typedef size_t compat_elements;
#else
typedef int compat_elements;
#endif

/* OpenSSL 3 looks an algorithm up at each use, unless that was done before. */
#ifdef USE_OPENSSL
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
#define compat_openssl_sha256() EVP_MD_fetch(NULL, "SHA256", NULL)
#else
#define compat_openssl_sha256() EVP_sha256()
#endif
#endif

/* Before OpenSSL 3 a connection that just ends was an error anyway. */
#if defined(USE_OPENSSL) && OPENSSL_VERSION_NUMBER < 0x30000000L
#define SSL_OP_IGNORE_UNEXPECTED_EOF 0
#endif

/* 17 renamed the variable that has the oldest transaction in the commit log. */
#if PG_VERSION_NUM >= 170000
#define compat_oldest_clog_xid() (TransamVariables->oldestClogXid)
#else
#define compat_oldest_clog_xid() (ShmemVariableCache->oldestClogXid)
#endif

/*
 * A minor release of all versions replaced the shared boolean by flags. Right
 * after a start these are not set yet; then the setting of this process tells.
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
