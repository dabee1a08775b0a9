/*
 * problem_view.c
 *		What outbox.problems shows, and of it outbox.status.
 *
 * Reads what the dispatcher and the launcher have noted (problem.c), and finds here what no
 * process could note, such as that there is none, or that it waits for a lock. On a standby
 * nothing is dispatched, so nothing of that is a problem there.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "src/api/problem_view.h"
#include "src/log/log.h"
#include "src/problem.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/table/relations.h"
#include "src/table/row_scan.h"

#define LOG_FULL_TOO	"The log is full, too, so messages are refused."

/* What is found when the view is read. */
typedef struct Findings
{
	DispatcherReport report;
	Problem		problems[PROBLEM_KINDS];
	TimestampTz lost_before;	/* 0 = nothing is lost */
	TimestampTz loss_noted;
	int64		log_size;
} Findings;

static const char *const names[] = {
#define PROBLEM_NAME(kind, name, severity) name,
	PROBLEM_LIST(PROBLEM_NAME)
#undef PROBLEM_NAME
};
static const char *const severities[] = {
#define PROBLEM_SEVERITY(kind, name, severity) severity,
	PROBLEM_LIST(PROBLEM_SEVERITY)
#undef PROBLEM_SEVERITY
};

static void gather_findings(Findings *findings);
static void read_losses(Findings *findings);
static char *text_of(const Findings *findings, ProblemKind kind, TimestampTz *since);
static char *find_without_dispatcher(const Findings *findings, ProblemKind kind);
static char *find_lock_wait(int dispatcher, TimestampTz *since);
static char *describe_deferred(const DispatcherReport *report);

PG_FUNCTION_INFO_V1(outbox_read_problems);

/*
 * Returns the text for outbox.status, palloc'd: the worst problem, and in
 * addition that messages are refused, if they are; NULL if there is no problem.
 */
char *
problem_view_first(void)
{
	Findings	findings;
	TimestampTz ignored;

	gather_findings(&findings);
	for (ProblemKind kind = 0; kind < PROBLEM_KINDS; kind++)
	{
		char	   *text = text_of(&findings, kind, &ignored);

		if (text == NULL)
			continue;
		if (kind != PROBLEM_LOG_FULL && text_of(&findings, PROBLEM_LOG_FULL, &ignored))
			text = psprintf("%s " LOG_FULL_TOO, text);
		return text;
	}
	return NULL;
}

/* outbox.read_problems() */
Datum
outbox_read_problems(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Findings	findings;

	InitMaterializedSRF(fcinfo, 0);
	gather_findings(&findings);
	for (ProblemKind kind = 0; kind < PROBLEM_KINDS; kind++)
	{
		Datum		values[4];
		bool		isnull[4] = {0};
		TimestampTz since;
		char	   *text = text_of(&findings, kind, &since);

		if (text == NULL)
			continue;
		values[0] = CStringGetTextDatum(names[kind]);
		values[1] = CStringGetTextDatum(severities[kind]);
		values[2] = CStringGetTextDatum(text);
		values[3] = TimestampTzGetDatum(since);
		isnull[3] = since == 0;
		tuplestore_putvalues(result->setResult, result->setDesc, values, isnull);
	}
	return (Datum) 0;
}

/* Reads all that the texts need once, so that they agree. */
static void
gather_findings(Findings *findings)
{
	DatabaseShared *shared = shared_mine();

	memset(findings, 0, sizeof(*findings));
	if (RecoveryInProgress())
		return;
	findings->log_size = log_size();
	read_losses(findings);
	if (shared == NULL)
		return;
	LWLockAcquire(shared->lock, LW_SHARED);
	findings->report = shared->report;
	memcpy(findings->problems, shared->problems, sizeof(findings->problems));
	LWLockRelease(shared->lock);
}

/* Reads losses that are committed now. The reader of the view need not have privileges on the table. */
static void
read_losses(Findings *findings)
{
	RowScan		scan;

	row_scan_begin(&scan, relations_enter()->loss, OWN_LOSS);
	while (row_scan_next(&scan))
	{
		TimestampTz noted;

		slot_getallattrs(scan.row);
		noted = DatumGetTimestampTz(scan.row->tts_values[1]);
		findings->lost_before = Max(findings->lost_before, DatumGetTimestampTz(scan.row->tts_values[0]));
		if (findings->loss_noted == 0 || noted < findings->loss_noted)
			findings->loss_noted = noted;
	}
	row_scan_end(&scan);
}

/*
 * Returns the text of a problem, NULL if there is none; and sets *since to when
 * it began, 0 if that is not known.
 */
static char *
text_of(const Findings *findings, ProblemKind kind, TimestampTz *since)
{
	const DispatcherReport *report = &findings->report;
	const Problem *problem = &findings->problems[kind];

	*since = problem->since;
	if (RecoveryInProgress() && kind != PROBLEM_NOT_PRELOADED)
		return NULL;
	switch (kind)
	{
		case PROBLEM_NOT_PRELOADED:
		case PROBLEM_DISPATCH_OFF:
		case PROBLEM_NO_DISPATCHER:
			return find_without_dispatcher(findings, kind);
		case PROBLEM_LOCK:
			return report->pid == 0 ? NULL : find_lock_wait(report->pid, since);
		case PROBLEM_LOSS:
			*since = findings->loss_noted;
			return findings->lost_before == 0 ? NULL :
				psprintf("Redis has lost messages that are no longer in the log. Some of those enqueued before %s might be missing from Redis. When you have dealt with that, call outbox_acknowledge_loss().",
						 timestamptz_to_str(findings->lost_before));
		case PROBLEM_LOG_FULL:
			return log_size_is_full(findings->log_size) ?
				"The log is full, so messages are refused. Raise outbox.max_log_size, or wait until outbox.replay_window has passed; a transaction that stays open keeps it full." : NULL;
		case PROBLEM_PAUSED:
			return problem->since == 0 ? NULL : "Everything is paused, so messages wait. Call outbox_resume().";
		case PROBLEM_DEAD:
			return problem->since == 0 ? NULL :
				psprintf(ngettext("%lld message is dead. See outbox.dead_letters, then call outbox_retry() or outbox_discard().",
								  "%lld messages are dead. See outbox.dead_letters, then call outbox_retry() or outbox_discard().",
								  report->dead),
						 (long long) report->dead);
		case PROBLEM_DESTINATION:
			return problem->since == 0 ? NULL : describe_deferred(report);
		default:
			return problem->since == 0 ? NULL : pstrdup(problem->text);
	}
}

/* The same for the problems of having no dispatcher, of which there is one at most. */
static char *
find_without_dispatcher(const Findings *findings, ProblemKind kind)
{
	const DispatcherReport *report = &findings->report;
	const char *reason = findings->problems[PROBLEM_NO_DISPATCHER].text;
	ProblemKind found = PROBLEM_KINDS;

	if (!shared_is_available())
		found = PROBLEM_NOT_PRELOADED;
	else if (report->state == DISPATCHER_OFF || (report->pid == 0 && !outbox_dispatch))
		found = PROBLEM_DISPATCH_OFF;
	else if (report->pid == 0)
		found = PROBLEM_NO_DISPATCHER;
	if (found != kind)
		return NULL;
	switch (kind)
	{
		case PROBLEM_NOT_PRELOADED:
			return "The library is not preloaded, so nothing is sent. Add shared_preload_libraries = 'outbox' to postgresql.conf and restart the server.";
		case PROBLEM_DISPATCH_OFF:
			return "Dispatch is off, so nothing is sent. Set outbox.dispatch = on by ALTER SYSTEM and a reload, or by ALTER DATABASE where that has turned it off.";
		default:
			if (reason[0] != '\0')
				return pstrdup(reason);
			if (shared_mine() == NULL)
				return psprintf("No dispatcher is running because the server has more than %d databases. Drop some that are not needed.",
								shared_capacity());
			return shared_has_launcher() ? "No dispatcher is running. One is started within seconds; if none is, see the server log." :
				"No dispatcher is running because the launcher is not. If this lasts, it has no worker slot: raise max_worker_processes and restart the server.";
	}
}

/*
 * The same for a lock that the dispatcher, which has that process ID, has waited for longer
 * than deadlock_timeout. Who has it is asked only then: that takes all locks of the lock
 * manager's table for a moment.
 */
static char *
find_lock_wait(int dispatcher, TimestampTz *since)
{
	PGPROC	   *process = BackendPidGetProc(dispatcher);
	ArrayType  *blockers;
	int			blocker;

	*since = process ? (TimestampTz) pg_atomic_read_u64(&process->waitStart) : 0;
	if (*since == 0 || !TimestampDifferenceExceeds(*since, GetCurrentTimestamp(), DeadlockTimeout))
		return NULL;
	blockers = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(dispatcher)));
	if (ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers)) == 0)
		return NULL;
	blocker = *(int32 *) ARR_DATA_PTR(blockers);
	return blocker != 0 ?
		psprintf("The dispatcher waits for a lock, so nothing is sent. End the transaction of process %d, which has it.", blocker) :
		pstrdup("The dispatcher waits for a lock, so nothing is sent. A prepared transaction has it: see pg_prepared_xacts, then commit it or roll it back.");
}

/*
 * Returns why deferred messages wait for their destination: it refuses them, or is paused,
 * or both (maybe one refuses them, and another one is paused), or all that is over. Those
 * that a dead one holds back wait for that.
 */
static char *
describe_deferred(const DispatcherReport *report)
{
	int64		n = report->deferred - report->held;

	if (report->deferred_error[0] == '\0' && !report->deferred_paused)
		return psprintf(ngettext("%lld message waits that was deferred, and is about to be sent. If that lasts and is the only problem, another session has locked rows of outbox.deferred: end its transaction.",
								 "%lld messages wait that were deferred, and are about to be sent. If that lasts and is the only problem, another session has locked rows of outbox.deferred: end its transaction.",
								 n),
						(long long) n);
	if (report->deferred_error[0] == '\0')
		return psprintf(ngettext("%lld message waits for a destination that is paused. See outbox.destinations, then call outbox_resume() with its name.",
								 "%lld messages wait for a destination that is paused. See outbox.destinations, then call outbox_resume() with its name.",
								 n),
						(long long) n);
	if (report->deferred_paused)
		return psprintf(ngettext("%lld message waits for a destination that has refused it and is paused. See outbox.destinations, call outbox_resume() with its name, and correct what the last reply names: %s",
								 "%lld messages wait for destinations that refuse them or are paused. See outbox.destinations, call outbox_resume() with the name of each that is paused, and correct what the last reply names: %s",
								 n),
						(long long) n, report->deferred_error);
	return psprintf(ngettext("%lld message waits for a destination that refuses it, and is retried. See outbox.destinations, and correct what the last reply names: %s",
							 "%lld messages wait for a destination that refuses them, and are retried. See outbox.destinations, and correct what the last reply names: %s",
							 n),
					(long long) n, report->deferred_error);
}
