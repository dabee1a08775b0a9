-- outbox_forget(): the next claim of the id succeeds, and makes it a duplicate again
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;

-- Claims, in a statement of its own.
CREATE FUNCTION pg_temp.handle(msgid text, endpoint text DEFAULT NULL, concurrency text DEFAULT NULL) RETURNS text AS $$
BEGIN
	IF NOT outbox_begin(msgid, endpoint, concurrency) THEN
		RETURN 'duplicate';
	END IF;
	RETURN 'processed, ' || outbox_commit() || ' messages';
END
$$ LANGUAGE plpgsql;

-- An id that is not known; one that is, in either mode; a second call.
SELECT outbox_forget('forget-0');
SELECT pg_temp.handle('forget-1'), pg_temp.handle('forget-2', concurrency => 'pessimistic');
SELECT outbox_forget('forget-1'), outbox_forget('forget-2'), outbox_forget('forget-2'), outbox_forget('forget-2', 'default');
SELECT outbox_wait('forget-1') AS not_known, count(*) AS shown FROM outbox.records WHERE msgid LIKE 'forget-%';
SELECT pg_temp.handle('forget-1', concurrency => 'pessimistic'), pg_temp.handle('forget-2');
SELECT pg_temp.handle('forget-1'), pg_temp.handle('forget-2');
SELECT outbox_wait('forget-1') AS known, count(*) AS shown FROM outbox.records WHERE msgid LIKE 'forget-%';
SELECT count(*) AS tombstones FROM outbox.forgotten;

-- Several times, also in one statement.
SELECT outbox_forget('forget-1'), pg_temp.handle('forget-1'), outbox_forget('forget-1'), pg_temp.handle('forget-1'), pg_temp.handle('forget-1');
BEGIN;
SELECT outbox_forget('forget-1');
SELECT outbox_begin('forget-1'), outbox_commit(), outbox_begin('forget-1');
SELECT outbox_forget('forget-1'), outbox_begin('forget-1'), outbox_commit();
COMMIT;
SELECT pg_temp.handle('forget-1');

-- ROLLBACK and ROLLBACK TO bring it back.
BEGIN;
SELECT outbox_forget('forget-1'), pg_temp.handle('forget-1');
ROLLBACK;
SELECT pg_temp.handle('forget-1');
BEGIN;
SAVEPOINT s;
SELECT outbox_forget('forget-1');
SELECT outbox_begin('forget-1') AS new;
ROLLBACK TO s;
SELECT outbox_begin('forget-1') AS new;
SAVEPOINT t;
SELECT outbox_forget('forget-1');
RELEASE t;
SAVEPOINT u;
SELECT pg_temp.handle('forget-1');
ROLLBACK TO u;
SELECT outbox_begin('forget-1') AS new, outbox_enqueue('forgotten', 'once more', NULL, 'm') AS enqueued, outbox_commit();
COMMIT;
SELECT pg_temp.handle('forget-1');

-- What the same transaction has processed; at every isolation level.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT pg_temp.handle('forget-3'), outbox_forget('forget-3'), pg_temp.handle('forget-3'), pg_temp.handle('forget-3');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outbox_forget('forget-3'), pg_temp.handle('forget-3');
COMMIT;
SELECT pg_temp.handle('forget-3');

-- Each endpoint has ids of its own; a uuid is the same id as its text.
SELECT outbox_create_endpoint('oblivious');
SELECT pg_temp.handle('00000000-0000-0000-0000-00000000beef', 'oblivious'), pg_temp.handle('00000000-0000-0000-0000-00000000beef');
SELECT outbox_forget('00000000-0000-0000-0000-00000000BEEF'::uuid, endpoint => 'oblivious');
SELECT pg_temp.handle('00000000-0000-0000-0000-00000000beef'), pg_temp.handle('00000000-0000-0000-0000-00000000beef', 'oblivious');

-- Records in a custom record table are deleted there, with the rights of its owner.
CREATE TABLE own_record (id text PRIMARY KEY, dispatched boolean NOT NULL, dispatched_at timestamptz);
CREATE INDEX ON own_record (dispatched_at);
SELECT pg_temp.handle('own-1', 'oblivious');
SELECT outbox_alter_endpoint('oblivious', record_table => 'own_record', record_columns => '{"message_id": "id", "dispatched": "dispatched", "dispatched_at": "dispatched_at"}');
SELECT pg_temp.handle('own-1', 'oblivious'), pg_temp.handle('own-2', 'oblivious');
SELECT outbox_wait('own-2', 'oblivious', '3 min') AS marked;
SELECT outbox_forget('own-1', 'oblivious'), outbox_forget('own-2', 'oblivious'), outbox_forget('own-3', 'oblivious');
SELECT count(*) FROM own_record;
SELECT pg_temp.handle('own-1', 'oblivious'), pg_temp.handle('own-2', 'oblivious');
SELECT pg_temp.handle('own-1', 'oblivious'), pg_temp.handle('own-2', 'oblivious');
SELECT id FROM own_record ORDER BY id;
SELECT outbox_wait('own-1', 'oblivious', '3 min') AS marked;
-- A record that is not marked cannot be forgotten: its receipt would mark the row that comes after it.
BEGIN;
SELECT pg_temp.handle('own-4', 'oblivious'), outbox_forget('own-4', 'oblivious');
\echo :SQLSTATE
ROLLBACK;
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep BEFORE DELETE ON own_record FOR EACH ROW EXECUTE FUNCTION keep();
SELECT outbox_forget('own-1', 'oblivious');
\echo :SQLSTATE
DROP TRIGGER keep ON own_record;
SELECT outbox_forget('own-1', 'oblivious');
SELECT outbox_drop_endpoint('oblivious', force => true);
DROP TABLE own_record;
DROP FUNCTION keep;

-- Bad arguments.
SELECT outbox_forget(NULL);
\echo :SQLSTATE
SELECT outbox_forget(NULL::uuid);
\echo :SQLSTATE
SELECT outbox_forget('forget-1', 'nowhere');
\echo :SQLSTATE
BEGIN READ ONLY;
SELECT outbox_forget('forget-1');
\echo :SQLSTATE
ROLLBACK;
