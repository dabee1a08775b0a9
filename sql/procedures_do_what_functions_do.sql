-- For frameworks that can use nothing but CALL.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; DROP ROLE IF EXISTS regress_outbox_app; RESET client_min_messages;
\set SHOW_CONTEXT never
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;

BEGIN;
CALL outbox_begin_message('call-1');
CALL outbox_enqueue_message('call', 'text', '{"type": "Text"}', 'call-text');
CALL outbox_enqueue_message('call', '{"a":  1}'::json, message_id => 'call-json');
CALL outbox_enqueue_message('call', '{"a":  1}'::jsonb, message_id => 'call-jsonb'::varchar);
CALL outbox_enqueue_message('call', '\x00ff'::bytea, NULL, '00000000-0000-0000-0000-00000000000a'::uuid);
CALL outbox_enqueue_message('call', 'later', message_id => 'call-later', deliver_at => '2100-01-01');
CALL outbox_commit_message();
COMMIT;
SELECT coalesce(message_uuid::text, message_id) AS message_id, cause, headers, body, deliver_at IS NOT NULL AS scheduled FROM log WHERE dest = 'call' ORDER BY id;

-- a duplicate
BEGIN;
CALL outbox_begin_message('call-1', NULL, NULL, NULL);
CALL outbox_commit_message();
COMMIT;
BEGIN;
CALL outbox_begin_message('00000000-0000-0000-0000-00000000000b'::uuid, 'default', 'pessimistic');
CALL outbox_commit_message();
COMMIT;

-- in autocommit, where CALL has no snapshot, with a body that is stored out of line
CALL outbox_enqueue_message('call', 'autocommit', message_id => 'call-autocommit');
CREATE TEMP TABLE large AS SELECT string_agg(md5(n::text), '') AS body FROM generate_series(1, 1000) n;
DO $$
DECLARE
	is_new boolean;
	row record;
BEGIN
	FOR n IN 1..3 LOOP
		COMMIT;
		SELECT * INTO row FROM large;
		CALL outbox_begin_message('call-loop-' || n, is_new => is_new);
		CALL outbox_enqueue_message('call', row.body, message_id => 'call-loop-' || n || is_new);
		CALL outbox_commit_message();
	END LOOP;
END
$$;
SELECT message_id, length(body) FROM log WHERE message_id LIKE 'call-loop-%' OR message_id = 'call-autocommit' ORDER BY id;

-- They refuse what the functions refuse.
CALL outbox_enqueue_message(NULL, 'x');
\echo :SQLSTATE
CALL outbox_enqueue_message('call', NULL);
\echo :SQLSTATE
CALL outbox_enqueue_message('call', 'x', '{"id": 1}');
\echo :SQLSTATE
CALL outbox_begin_message('');
\echo :SQLSTATE
CALL outbox_begin_message('call-2');
\echo :SQLSTATE
CALL outbox_commit_message();
\echo :SQLSTATE
BEGIN READ ONLY;
CALL outbox_enqueue_message('call', 'x');
\echo :SQLSTATE
ROLLBACK;

-- rights
CREATE ROLE regress_outbox_app;
SET ROLE regress_outbox_app;
CALL outbox_enqueue_message('call', 'x');
\echo :SQLSTATE
RESET ROLE;
SELECT outbox_grant('regress_outbox_app');
SET ROLE regress_outbox_app;
BEGIN;
CALL outbox_begin_message('call-3');
CALL outbox_enqueue_message('call', 'x');
CALL outbox_commit_message();
ROLLBACK;
RESET ROLE;
SELECT outbox_revoke('regress_outbox_app');
SET ROLE regress_outbox_app;
CALL outbox_commit_message();
\echo :SQLSTATE
RESET ROLE;
DROP ROLE regress_outbox_app;
