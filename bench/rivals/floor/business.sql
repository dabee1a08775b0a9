\set number random(1, 9000000000000000)
BEGIN;
INSERT INTO business (number, value) VALUES (:number, 'changed');
COMMIT;
