INSERT INTO outgoing_messages (dest, body) VALUES ('probe', $1)
