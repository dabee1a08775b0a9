-- deliver_at: not before that time; a time in the past means now.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;

BEGIN;
SELECT outbox_begin('later-1');
SELECT outbox_enqueue('later', 'x', NULL, 'no time', NULL);
SELECT outbox_enqueue('later', 'x', NULL, 'now', now());
SELECT outbox_enqueue('later', 'x', NULL, 'past', now() - interval '1 day');
SELECT outbox_enqueue('later', 'x', message_id => 'long past', deliver_at => '-infinity');
SELECT outbox_enqueue('later', 'x', message_id => 'future', deliver_at => '2999-01-01 00:00:00+00');
SELECT outbox_enqueue('later', '{"a": 1}'::jsonb, '{"h": 1}', 'future of jsonb', '2999-01-01 00:00:00.000001+00');
-- It counts like every other message.
SELECT outbox_commit();
COMMIT;
SELECT message_id, extract(epoch FROM deliver_at) AS deliver_at, cause, headers FROM log WHERE dest = 'later' ORDER BY id;
-- What is scheduled is not dispatched until it is due.
SELECT outbox_wait('later-1', timeout => '0');

-- for ever is no time
SELECT outbox_enqueue('later', 'x', deliver_at => 'infinity');
\echo :SQLSTATE
SELECT count(*) FROM log WHERE dest = 'later';

-- rolled back, it will never be sent
BEGIN;
SELECT outbox_enqueue('later', 'x', message_id => 'future gone', deliver_at => '2999-01-01');
ROLLBACK;
SELECT count(*) FROM log WHERE message_id = 'future gone';
