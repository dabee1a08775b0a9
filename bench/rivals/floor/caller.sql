\set number random(1, 9000000000000000)
BEGIN;
SELECT 1;
INSERT INTO business (number, value) VALUES (:number, 'changed');
SELECT 1;
SELECT 1;
COMMIT;
