import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import org.postgresql.util.PSQLException;

/**
 * Handles incoming messages: each becomes an order and an event, in one transaction.
 *
 *     java Producer postgresql://USER:PASSWORD@HOST:PORT/DATABASE < messages
 *
 * Reads messages from standard input, one to a line: id, customer, amount. A real
 * program would get them from its broker and acknowledge each when handle() has
 * returned. Prints for each message whether it was processed, a duplicate, or refused.
 */
public class Producer {
    public static void main(String[] args) throws Exception {
        URI url = new URI(args.length == 1 ? args[0] : "");
        if (url.getUserInfo() == null) {
            System.err.println("usage: java Producer postgresql://USER:PASSWORD@HOST:PORT/DATABASE < messages");
            System.exit(1);
        }
        Connection connection = null;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] message = line.split(" ");
            String result = null;
            boolean clashed = false;
            while (result == null) {
                try {
                    if (connection == null) {
                        connection = connect(url);
                    }
                    result = handle(connection, message[0], message[1], message[2]);
                } catch (PSQLException error) {
                    result = afterError(error, clashed);
                    clashed |= error.getSQLState().equals("23505");
                    if (isLost(error)) {
                        connection = null;
                        System.err.println("trying again: " + error.getMessage());
                        Thread.sleep(100);
                    } else {
                        connection.rollback();
                    }
                }
            }
            System.out.println(message[0] + " " + result);
        }
    }

    static Connection connect(URI url) throws SQLException {
        String[] login = url.getUserInfo().split(":", 2);
        // A transaction pooler does not carry prepared statements over.
        Connection connection = DriverManager.getConnection(
            "jdbc:postgresql://" + url.getAuthority().replaceFirst(".*@", "") + url.getPath() + "?prepareThreshold=0",
            login[0], login.length > 1 ? login[1] : null);
        connection.setAutoCommit(false);
        return connection;
    }

    static String handle(Connection connection, String id, String customer, String amount) throws SQLException {
        boolean isNew;
        // The endpoint is an argument and not a SET: a pooler may give the session to others.
        try (PreparedStatement begin = connection.prepareStatement("SELECT outbox_begin(?, endpoint => 'orders')")) {
            begin.setString(1, id);
            ResultSet rows = begin.executeQuery();
            rows.next();
            isNew = rows.getBoolean(1);
        }
        if (isNew) {
            update(connection, "INSERT INTO orders (customer, amount) VALUES (?, ?::integer)", customer, amount);
            // Functions are queries; executeUpdate takes procedures.
            update(connection, "CALL outbox_enqueue_message('order-events', jsonb_build_object('customer', ?::text, 'amount', ?::integer), ?::jsonb)",
                customer, amount, "{\"type\": \"OrderPlaced\"}");
            update(connection, "CALL outbox_commit_message()");
        }
        connection.commit();
        return isNew ? "processed" : "duplicate";
    }

    static void update(Connection connection, String sql, String... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                statement.setString(i + 1, values[i]);
            }
            statement.executeUpdate();
        }
    }

    /** Whether the connection is gone; then it is safe to begin again with the same id. */
    static boolean isLost(PSQLException error) {
        return error.getSQLState().startsWith("08") || error.getSQLState().startsWith("57P");
    }

    /** Returns "refused" for a message that no retry will help, null to try again. */
    static String afterError(PSQLException error, boolean clashed) throws PSQLException {
        String state = error.getSQLState();
        if (isLost(error) || state.equals("40001") || state.equals("40P01")) {
            return null; // another transaction was faster; nothing has happened
        }
        if (state.equals("23505") && !clashed) {
            return null; // perhaps a copy was processed meanwhile: then the next try is a duplicate
        }
        if (state.startsWith("22") || state.startsWith("23")) {
            return "refused"; // poison: to be put where somebody will look at it
        }
        throw error;
    }
}
