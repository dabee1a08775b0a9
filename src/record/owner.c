/*
 * owner.c
 *		Working with the rights of a table's owner, and with no others.
 *
 * Called around statements on tables that the caller need have no rights on:
 * outbox.endpoint, and custom record tables, which may have triggers and
 * defaults. These run with the rights of the table's owner in a
 * security-restricted operation, as they do under VACUUM and REINDEX: so they
 * gain nothing from whoever happens to call, be it a superuser or a worker.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "src/record/owner.h"

/*
 * Takes the rights of `owner`, with a search_path that finds nobody's objects
 * but the system's. An error needs no owner_rights_return(): the end of the
 * (sub)transaction restores all.
 */
void
owner_rights_take(OwnerRights *before, Oid owner)
{
	before->nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	GetUserIdAndSecContext(&before->user, &before->context);
	SetUserIdAndSecContext(owner, before->context | SECURITY_RESTRICTED_OPERATION);
}

void
owner_rights_return(const OwnerRights *before)
{
	SetUserIdAndSecContext(before->user, before->context);
	AtEOXact_GUC(false, before->nest_level);
}
