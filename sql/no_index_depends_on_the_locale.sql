-- The C library or ICU may change the order of a locale. Indexes of names are in the order
-- of their bytes, so that they find all rows after that, too.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;

SELECT count(*) > 0 AS has_indexes_of_names, count(*) FILTER (WHERE l.oid <> '"C"'::regcollation) AS in_another_order
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r'
	CROSS JOIN unnest(i.indcollation) l (oid)
WHERE l.oid <> 0;

-- What is compared with them has the order of the database, and is no conflict.
BEGIN;
SELECT outbox_set_destination('Zebra', 'zoo');
SELECT outbox_pause('Zebra');
SELECT outbox_resume('Zebra');
SELECT dest, stream, paused FROM outbox.destinations WHERE dest = 'Zebra';
SELECT outbox_create_endpoint('Zebra');
SELECT outbox_alter_endpoint('Zebra', retention => '1 day');
SELECT name, retention FROM outbox.endpoints WHERE name = 'Zebra';
SELECT outbox_retry('Zebra', 'none'), outbox_discard('Zebra', 'none');
ROLLBACK;
