-- What the examples need in a database that has the extension.

CREATE TABLE orders (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	customer text NOT NULL,
	amount integer NOT NULL CHECK (amount > 0)
);

SELECT outbox_create_endpoint('orders');
