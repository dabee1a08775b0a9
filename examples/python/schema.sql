-- What the example needs in a database that has the extension.
--
--     psql -f schema.sql
--     echo '{"id": "m1", "customer": "c1", "amount": 5}' | ./producer.py "dbname=postgres"
--     ./consumer.py redis://127.0.0.1:6379/0 one

CREATE TABLE orders (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	customer text NOT NULL,
	amount integer NOT NULL
);

SELECT outbox_create_endpoint('orders');
