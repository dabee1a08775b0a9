\set number random(1, 1000000000000)
BEGIN;
INSERT INTO business (number, value) VALUES (:number, 'changed');
COMMIT;
