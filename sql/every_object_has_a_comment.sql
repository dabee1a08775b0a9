-- \dx+, \d+ and \df+ explain everything that the extension brings.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;

-- All members, and what depends on its tables.
CREATE TEMP TABLE objects AS
WITH member AS (
	SELECT d.classid, d.objid
	FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'outbox'
)
SELECT classid, objid, 0 AS objsubid FROM member
UNION ALL
SELECT m.classid, m.objid, a.attnum
FROM member m JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid AND c.relkind IN ('r', 'v')
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'pg_trigger'::regclass, t.oid, 0
FROM member m JOIN pg_trigger t ON m.classid = 'pg_class'::regclass AND t.tgrelid = m.objid AND NOT t.tgisinternal;

SELECT DISTINCT o.type COLLATE "C" AS type
FROM objects, pg_identify_object(classid, objid, objsubid) o
WHERE o.type NOT LIKE '%type%' ORDER BY 1;
SELECT o.type, o.identity AS without_a_comment
FROM objects, pg_identify_object(classid, objid, objsubid) o
WHERE o.type NOT LIKE '%type%' AND NOT EXISTS (SELECT FROM pg_description d
	WHERE d.classoid = classid AND d.objoid = objid AND d.objsubid = objects.objsubid AND d.description <> '')
ORDER BY 1, 2;
SELECT obj_description(oid, 'pg_extension') AS comment FROM pg_extension WHERE extname = 'outbox';

-- No role has a privilege on anything.
SELECT o.identity AS open_to_the_public
FROM objects, pg_identify_object(classid, objid, objsubid) o
WHERE classid = 'pg_proc'::regclass AND has_function_privilege('public', objid, 'EXECUTE')
	OR classid = 'pg_class'::regclass AND has_table_privilege('public', objid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
	OR classid = 'pg_namespace'::regclass AND has_schema_privilege('public', objid, 'USAGE, CREATE');

-- What the functions are called with, and how they are marked.
SELECT p.oid::regprocedure AS function, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result,
	provolatile, proparallel, proisstrict, prosecdef, proconfig
FROM objects JOIN pg_proc p ON classid = 'pg_proc'::regclass AND objid = p.oid
WHERE proname LIKE 'outbox\_%' ORDER BY p.oid::regprocedure::text COLLATE "C";
-- Those that run SQL do not depend on the caller's search path.
SELECT p.oid::regprocedure AS without_a_search_path
FROM objects JOIN pg_proc p ON classid = 'pg_proc'::regclass AND objid = p.oid JOIN pg_language l ON l.oid = prolang
WHERE lanname <> 'c' AND NOT coalesce(proconfig::text LIKE '%search_path=pg_catalog, pg_temp%', false);
