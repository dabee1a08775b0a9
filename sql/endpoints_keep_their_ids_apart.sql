-- Message ids are remembered per endpoint.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
SELECT outbox_create_endpoint('billing');
SELECT outbox_create_endpoint('Billing');
SELECT outbox_create_endpoint('a');
SELECT outbox_create_endpoint('ab');

BEGIN;
SELECT outbox_begin('apart-1'), outbox_commit();
SELECT outbox_begin('apart-1', 'billing'), outbox_commit();
SELECT outbox_begin('apart-1', 'Billing'), outbox_commit();
-- Endpoint and id are not just concatenated.
SELECT outbox_begin('bc', 'a'), outbox_commit();
SELECT outbox_begin('c', 'ab'), outbox_commit();
COMMIT;
SELECT outbox_begin('apart-1');
SELECT outbox_begin('apart-1', 'default');
SELECT outbox_begin('apart-1', 'billing');
SELECT outbox_begin('apart-1', 'Billing');
SELECT outbox_begin('bc', 'a');
SELECT outbox_begin('c', 'ab');

-- outbox.endpoint: for the session, and for one transaction.
SET outbox.endpoint = 'billing';
SELECT outbox_begin('apart-1');
BEGIN;
SELECT outbox_begin('apart-2'), outbox_commit();
COMMIT;
BEGIN;
SET LOCAL outbox.endpoint = 'a';
SELECT outbox_begin('apart-2'), outbox_commit();
COMMIT;
RESET outbox.endpoint;
BEGIN;
SELECT outbox_begin('apart-2'), outbox_commit();
COMMIT;
SELECT endpoint, msgid FROM outbox.records
WHERE msgid LIKE 'apart-%' OR msgid IN ('bc', 'c') ORDER BY msgid, endpoint COLLATE "C";

-- A message belongs to the endpoint for which it was opened.
BEGIN;
SELECT outbox_begin('apart-3', 'billing');
SET LOCAL outbox.endpoint = 'a';
SELECT outbox_commit();
COMMIT;
SELECT endpoint FROM outbox.records WHERE msgid = 'apart-3';

-- The records of an endpoint that was dropped are still there when it is created again.
SELECT outbox_drop_endpoint('billing');
SELECT outbox_begin('apart-1', 'billing');
\echo :SQLSTATE
SELECT outbox_create_endpoint('billing');
SELECT outbox_begin('apart-1', 'billing');

SELECT outbox_drop_endpoint(name) FROM unnest('{billing,Billing,a,ab}'::text[]) name;
