SELECT outbox_enqueue('probe', $1::text)
