INSERT INTO outgoing_messages (dest, body) SELECT 'bench', '{"type": "BalanceChanged", "account": ' || i || ', "delta": -100}' FROM generate_series(:first, :last) i;
