\set id random(1000000000, 9000000000000000)
BEGIN;
SELECT outbox_begin('w' || :id);
SELECT outbox_commit();
COMMIT;
